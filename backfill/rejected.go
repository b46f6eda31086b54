package backfill

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/rejected"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// atRow names the row that blocks by its place in the table. The relay's own words are about a
// slot that could be moved.
func (w *work) atRow(err error) error {
	_, at, cause, ok := w.placed(err)
	if !ok {
		return err
	}
	next := "correct the row or the mapping, set relay.on_reject: dead_letter, or leave the row out with --where and --restart; then run the command again"
	if w.replay != nil && w.replay.beside != nil {
		next = besideHint
	}
	if missing, ok := errors.AsType[*fault.Error](cause); ok { // a schema; the row is not at fault
		seen, hint := missing.Apart()
		cause, next = errors.New(seen), strings.TrimSuffix(hint, "; the relay tries again by itself")+"; then run the command again"
	}
	return fmt.Errorf("%s: %w; %s", at, cause, next)
}

// placed names the row of an error by its place in the table, and gives the error without the
// relay's own words.
func (w *work) placed(err error) (number uint64, at string, cause error, ok bool) {
	cause = err
	if e, ok := errors.AsType[*rejected.DeliveryError](err); ok {
		number, cause = uint64(e.Commit), e.Err
	}
	if e, ok := errors.AsType[*record.RowError](err); ok {
		number, cause = uint64(e.Commit), e.Err
	}
	if number == 0 {
		return 0, "", nil, false
	}
	for next := errors.Unwrap(cause); next != nil && strings.HasPrefix(cause.Error(), next.Error()+"; to "); next = errors.Unwrap(cause) {
		cause = next
	}
	place, ok := w.track.At(number)
	if !ok {
		return number, "", nil, false
	}
	t := &w.tables[place.Table]
	return number, fmt.Sprintf("row of table %s at %s", t.Name, t.Order.Describe(place.Done)), cause, true
}

// noteSkipped takes note of a row that cannot be sent and is left out, while its place is known. The
// brokers' and the sink's errors say what to do about them; of the mapping's, explain shows more.
func (w *work) noteSkipped(reason string, err error) {
	next := ""
	if _, routed := errors.AsType[*record.RowError](err); routed {
		next = "; `cdc-relay explain` shows what the mapping makes of a row"
	}
	number, at, cause, ok := w.placed(err)
	if !ok {
		at, cause = "a row", err
	}
	w.track.LeaveOut(number, fmt.Sprintf("%s (%s): %v%s", at, reason, cause, next))
}
