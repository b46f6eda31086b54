package audit

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
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
	if p.tables, err = Tables(settings, o.Table, o.Where != "" || o.By != "" || len(o.Order) > 0); err != nil {
		return nil, err
	}
	if p.since, p.until, err = Between(o.Since, o.Until); err != nil {
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

// Tables returns the indexes of the selected tables; one reports whether the options apply to a single table.
func Tables(settings *relay.Config, name string, one bool) ([]int, error) {
	tables := settings.Replication.Tables
	switch {
	case len(tables) == 0:
		return nil, usage("the configuration has no table: logical messages leave none behind")
	case name == "" && one && len(tables) > 1:
		return nil, usage("the configuration has %d tables, and the conditions are about one: name it with --table", len(tables))
	case name == "":
		all := make([]int, len(tables))
		for i := range all {
			all[i] = i
		}
		return all, nil
	}
	named, err := wal.ParseTable(name)
	if err != nil {
		return nil, usage("--table: %w", err)
	}
	i := slices.Index(tables, named)
	if i < 0 {
		list := make([]string, len(tables))
		for n, t := range tables {
			list[n] = t.String()
		}
		return nil, usage("--table %s is not configured; allowed: %s", named, strings.Join(list, ", "))
	}
	return []int{i}, nil
}

// Between reads the two ends of a time; an empty one is open.
func Between(since, until string) (from, to time.Time, err error) {
	for _, end := range []struct {
		flag, text string
		at         *time.Time
	}{{"--since", since, &from}, {"--until", until, &to}} {
		if end.text == "" {
			continue
		}
		if *end.at, err = time.Parse(time.RFC3339, end.text); err != nil {
			return from, to, usage("%s %q is not allowed; allowed: a time with its zone, such as 2026-01-31T00:00:00Z or 2026-01-31T00:00:00+01:00", end.flag, end.text)
		}
	}
	if since != "" && until != "" && !from.Before(to) {
		return from, to, usage("--since %s is not before --until %s", since, until)
	}
	return from, to, nil
}
