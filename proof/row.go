package proof

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
)

// TID is the place of a row version in its table (ctid): block, and item in the block.
type TID struct {
	Block uint32
	Item  uint16
}

func (t TID) String() string {
	return "(" + strconv.FormatUint(uint64(t.Block), 10) + "," + strconv.FormatUint(uint64(t.Item), 10) + ")"
}

// ParseTID reads the text form that the server prints.
func ParseTID(text string) (TID, error) {
	inner, opened := strings.CutPrefix(text, "(")
	inner, closed := strings.CutSuffix(inner, ")")
	block, item, divided := strings.Cut(inner, ",")
	b, errBlock := strconv.ParseUint(block, 10, 32)
	i, errItem := strconv.ParseUint(item, 10, 16)
	if !opened || !closed || !divided || errBlock != nil || errItem != nil {
		return TID{}, fmt.Errorf("parse ctid %q: want (block,item)", text)
	}
	return TID{uint32(b), uint16(i)}, nil
}

// Row names a version of a row. TID, XMin and File name no other version as long as the
// connection that read them lives.
type Row struct {
	TID  TID
	XMin uint32
	File uint32 // number of the table's file (relfilenode) that has the place
	ID   string // of the event, as the record's header id has it; empty when it is NULL
	NoID bool   // the id is NULL, or the table has none
}

// Waiting are the dead letters that are not done with.
type Waiting struct {
	IDs  map[string]struct{} // of events
	NoID bool                // a letter that names no event: it may be any row without an id
	All  bool                // a letter that may be any row's
	Full bool                // there are more than could be kept

	Unmarked bool // more of them were discarded than could be kept, and those count too
}

// full refuses a set that is not complete.
func (w Waiting) full() error {
	switch {
	case w.Full:
	case w.Unmarked:
		return refuse(fault.ReasonDeadLettersFull, "", "delete the rows of discarded dead letters, then, when none waits, the records of the dead-letter topic (kafka-delete-records.sh), and restart", "more dead letters were discarded than can be held against the rows")
	default:
		return nil
	}
	return refuse(fault.ReasonDeadLettersFull, "", "send or discard them: cdc-relay deadletter", "more dead letters wait than can be held against the rows")
}

// without returns the rows that no letter waits for.
func (w Waiting) without(rows []Row) []Row {
	if w.All {
		return nil
	}
	free := make([]Row, 0, len(rows))
	for _, r := range rows {
		_, waits := w.IDs[r.ID]
		if !r.NoID && !waits || r.NoID && !w.NoID {
			free = append(free, r)
		}
	}
	return free
}
