package promise

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
)

// Doubt takes back what is known of the rows that the stream of a slot does not have: a change
// of publication or table left some out, and the slot's position is ahead of them. After it
// nobody takes a row of the slot's tables for delivered until a person says so
// (checkpoint.BeforeDeclared). A record that is not readable is none that anybody relies on.
func Doubt(ctx context.Context, ledger Ledger, system, slot, version string) error {
	known, err := ledger.Read(ctx, checkpoint.BeforeSlotSuffix(system, slot))
	if err != nil {
		return err
	}
	for key, value := range known {
		rec, err := checkpoint.ParseBeforeSlot(value)
		if err != nil || !rec.Before.Known() {
			continue
		}
		rec.Before, rec.At, rec.Relay = checkpoint.BeforeUnknown, time.Now(), version
		if err := ledger.Write(ctx, key, rec.Encode()); err != nil {
			return err
		}
	}
	return nil
}
