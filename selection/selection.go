// Package selection reads what a command line says about which rows are meant: the flags --table,
// --since and --until. Pure.
package selection

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

func usage(text string, args ...any) error { return &advice.Usage{Err: fmt.Errorf(text, args...)} }

// Tables are the indexes of the configured tables that --table means: of the named one, or of all
// without a name.
func Tables(configured []wal.Table, name string) ([]int, error) {
	if name == "" {
		all := make([]int, len(configured))
		for i := range all {
			all[i] = i
		}
		return all, nil
	}
	named, err := wal.ParseTable(name)
	if err != nil {
		return nil, usage("--table: %w", err)
	}
	if i := slices.Index(configured, named); i >= 0 {
		return []int{i}, nil
	}
	list := make([]string, len(configured))
	for i, t := range configured {
		list[i] = t.String()
	}
	return nil, usage("--table %s is not configured; allowed: %s", named, strings.Join(list, ", "))
}

// Between reads --since and --until; an empty one is open.
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
