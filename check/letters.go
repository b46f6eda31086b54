package check

import (
	"context"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/deadletter/overtaken"
)

// overtaken looks for dead letters that later rows of their keys overtake. A relay without a
// dead-letter topic has none.
func (d *checker) overtaken(ctx context.Context) {
	const check = "deadletter.order"
	found, ok, err := overtaken.ReadLetters(ctx, d.settings)
	switch {
	case err != nil:
		d.add(check, advice.Warn, "correct the cause, and run the check again", "whether rows are sent past dead letters of their keys is not known: %v", err)
	case ok && len(found) == 0:
		d.ok(check, "no row is sent past a dead letter of a parked key")
	}
	for _, f := range found {
		d.add(check, advice.Warn, f.Next(), "%s", f.Seen())
	}
}
