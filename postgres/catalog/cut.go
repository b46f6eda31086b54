package catalog

import (
	"fmt"
	"regexp"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Cut is where a table's rows begin that the stream sends: those that commit before are without a
// mark and the polling publisher's, later ones have one. The comment of the trigger has it, from
// the transaction that made the trigger.
type Cut struct {
	At     wal.LSN
	System string // system identifier of the cluster
	Slot   string // the configured one, without the number of a shard
	Time   time.Time
	Off    bool // the trigger is disabled: new rows are the publisher's again

	// As is how the publications had the table then (Fingerprint); empty: nobody looked.
	As string
}

func (c *Cut) String() string {
	text := fmt.Sprintf("cdc-relay cut at %s for %s/%s on %s", c.At, c.System, c.Slot, c.Time.UTC().Format(time.RFC3339))
	if c.As != "" {
		text += " published as " + c.As
	}
	return text
}

// Backfill is the command that sends the rows from the cut on: they have a mark, and no publisher
// sends them.
func (c *Cut) Backfill() string {
	return fmt.Sprintf("`cdc-relay backfill --where \"created_at >= '%s'\" --yes`, with the table's own column: rows that were written before and committed after need an earlier time", c.Time.UTC().Format("2006-01-02 15:04:05Z"))
}

var cutText = regexp.MustCompile(`^cdc-relay cut at ([0-9A-F]+/[0-9A-F]+) for ([0-9]+)/([a-z0-9_]+) on (\S+?)(?: published as ([0-9a-f]+))?$`)

// ParseCut reads what String gave.
func ParseCut(text string) (*Cut, error) {
	m := cutText.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("the comment of trigger %s has no position of the cut", postgres.CutoverTrigger)
	}
	at, err := wal.ParseLSN(m[1])
	if err != nil {
		return nil, err
	}
	when, err := time.Parse(time.RFC3339, m[4])
	if err != nil {
		return nil, err
	}
	return &Cut{At: at, System: m[2], Slot: m[3], Time: when, As: m[5]}, nil
}
