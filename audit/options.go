package audit

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/selection"
)

// Options say which rows are audited, and how.
type Options struct {
	Table  string // as in the configuration; empty: all tables
	Where  string // SQL condition
	Since  string // RFC 3339; by the column By
	Until  string // exclusive
	By     string // column of the time; empty: that of creation
	Order  []string
	Sample string // 1/N

	Expect            string // Once, AtLeastOnce, or empty: as the configuration promises
	ConcurrentWriters bool   // writers of one key may overlap, so that a sequence tells nothing of their commits

	Memory  int64 // bytes
	Dir     string
	Report  string // file
	ShowIDs bool
	Wait    time.Duration
}

// What Options.Expect may be.
const (
	Once        = "once"
	AtLeastOnce = "at-least-once"
)

// minMemory is the least that makes sense beside what the clients need.
const minMemory = 64 << 20

func usage(text string, args ...any) error { return &advice.Usage{Err: fmt.Errorf(text, args...)} }

// parsed are options that make sense.
type parsed struct {
	Options
	tables       []int
	since, until time.Time
	sample       uint64
	once         bool
}

func (o *Options) parse(settings *relay.Config) (p *parsed, err error) {
	p = &parsed{Options: *o, sample: 1, once: settings.Guarantee == relay.ExactlyOnce}
	switch o.Expect {
	case "":
	case Once, AtLeastOnce:
		p.once = o.Expect == Once
	default:
		return nil, usage("--expect %q is not allowed; allowed: %s, %s", o.Expect, Once, AtLeastOnce)
	}
	if o.Memory < minMemory {
		return nil, usage("--memory: %d bytes are too few; allowed: 64MiB and more", o.Memory)
	}
	if o.Wait < 0 {
		return nil, usage("--wait %s is not allowed; allowed: 0s and more", o.Wait)
	}
	if o.Dir != "" {
		if at, err := os.Stat(o.Dir); err != nil {
			return nil, usage("--dir: %w", err)
		} else if !at.IsDir() {
			return nil, usage("--dir: %s is no directory", o.Dir)
		}
	}
	if p.tables, err = selectTables(settings, o.Table, o.Where != "" || o.By != "" || len(o.Order) > 0); err != nil {
		return nil, err
	}
	if p.since, p.until, err = selection.Between(o.Since, o.Until); err != nil {
		return nil, err
	}
	if o.Sample != "" {
		n, found := strings.CutPrefix(o.Sample, "1/")
		p.sample, err = strconv.ParseUint(n, 10, 32)
		if !found || err != nil || p.sample == 0 {
			return nil, usage("--sample %q is not allowed; allowed: 1/N, such as 1/100", o.Sample)
		}
	}
	return p, nil
}

// selectTables gives the indexes of the tables that are audited. one: the options apply to one table.
func selectTables(settings *relay.Config, name string, one bool) ([]int, error) {
	tables := settings.Replication.Tables
	switch {
	case len(tables) == 0:
		return nil, usage("the configuration has no table: logical messages leave none behind")
	case name == "" && one && len(tables) > 1:
		return nil, usage("the configuration has %d tables, and the conditions are about one: name it with --table", len(tables))
	}
	return selection.Tables(tables, name)
}
