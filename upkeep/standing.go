package upkeep

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Slot is how far a slot is behind the end of the WAL. Nothing is done to rows past its position.
type Slot struct {
	Name   string `json:"name"`
	Behind uint64 `json:"bytes_behind"`
	Active bool   `json:"active"`
}

// Refusal is a reason for doing nothing.
type Refusal struct {
	Reason string `json:"reason"`
	Seen   string `json:"seen"`
	Advice string `json:"advice,omitempty"`
}

// Refusals are errors as a plan shows them.
func Refusals(all []error) []Refusal {
	list := make([]Refusal, 0, len(all))
	for _, err := range all {
		seen, next := advice.Split(err)
		list = append(list, Refusal{Reason: Reason(err), Seen: seen, Advice: next})
	}
	return list
}

// Line is the refusal for people.
func (r *Refusal) Line() string {
	text := fmt.Sprintf("%s (%s)", r.Seen, r.Reason)
	if r.Advice != "" {
		text += " → " + r.Advice
	}
	return text
}

// Standing is what a proof of a table's rows would find.
type Standing struct {
	Refused error // that would end it, whatever the rows; nil: nothing
	Letters int   // that wait
	Slots   []Slot
	Notes   []string
}

// Standing asks what would keep a proof from being given. Where something else does already, the
// dead letters need not be readable.
func (s *Service) Standing(ctx context.Context, table wal.Table, oid uint32, id Identity, refused bool) (at Standing, err error) {
	if err := s.Reader.Identify(ctx); err != nil {
		return at, err
	}
	if err := s.Ready(ctx, s.Prover(table, oid, id, false, nil), s.Surveyor); err != nil {
		if e, ok := errors.AsType[*fault.Error](err); !ok || e.Kind == fault.KindRetry {
			return at, err
		}
		at.Refused = err
	}
	kept := s.Records(table, oid, id)
	held, _, err := kept.Held(ctx)
	if err != nil && !refused && at.Refused == nil {
		return at, err
	}
	at.Letters = held.Letters
	at.Notes = append(at.Notes, kept.Unnamed(&held)...)
	end, err := s.Surveyor.Fence(ctx)
	if err != nil {
		return at, err
	}
	slots, err := s.Surveyor.Slots(ctx, slices.Concat(s.Reader.Slots(), s.Limits.AlsoWaitFor))
	if err != nil {
		return at, err
	}
	at.Slots = make([]Slot, 0, len(slots))
	for _, slot := range slots {
		at.Slots = append(at.Slots, behind(slot, end))
		if !slot.Active {
			at.Notes = append(at.Notes, fmt.Sprintf("nobody streams from slot %s: no relay runs, or it is blocked (`cdc-relay status`); rows that the slot has not passed stay", slot.Name))
		}
	}
	return at, nil
}

func behind(slot proof.Slot, end wal.LSN) Slot {
	s := Slot{Name: slot.Name, Active: slot.Active}
	if slot.Confirmed < end {
		s.Behind = uint64(end - slot.Confirmed)
	}
	return s
}
