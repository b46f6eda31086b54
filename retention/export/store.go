package export

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Store is where files go: a *Folder or a *Bucket.
type Store interface {
	// Write stores the rows that each gives, in one file. It was compared with what was written when
	// Write returns, and is not lost with a process or a machine. Rows that the newest file of the slice has
	// already, and no others, are not written again. It returns the name of the last file, and the
	// size of what was written.
	Write(ctx context.Context, s Slice, header *Header, each func(row func([]Value) error) error) (name string, size int64, err error)

	// Probe tells what would keep a file from being written. It leaves nothing behind.
	Probe(ctx context.Context) error
}

// Refusal is an error that stays until somebody acts.
type Refusal struct {
	Err  error
	Key  string // of the configuration that is wrong, as it is called beside "to"; empty: none is
	Hint string
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns what happened.
func (r *Refusal) Unwrap() error { return r.Err }

// Slice is the hour, or the hours, whose rows are in one file.
type Slice struct {
	Table string
	Begin time.Time // in UTC
}

const ending = ".ndjson.zst"

// folder is the part of the names that files of one day have in common.
func (s Slice) folder() string { return folderName(s.Table) + "/" + s.Begin.Format("2006/01/02") }

func (s Slice) hour() string { return s.Begin.Format("15") }

// file is the last part of a name.
func (s Slice) file(part int) string { return s.hour() + "-" + strconv.Itoa(part) + ending }

// part is the number in a name that file made; false: it is another one's.
func (s Slice) part(name string) (int, bool) {
	name, whole := strings.CutSuffix(name, ending)
	number, mine := strings.CutPrefix(name, s.hour()+"-")
	n, err := strconv.Atoi(number)
	return n, whole && mine && err == nil && n >= 0
}

// folderName keeps a table's name from leading elsewhere.
func folderName(table string) string {
	name := url.PathEscape(table)
	if strings.Trim(name, ".") == "" {
		name = strings.ReplaceAll(name, ".", "%2E")
	}
	return name
}
