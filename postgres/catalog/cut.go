package catalog

import (
	"fmt"
	"regexp"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
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

// ReadCut reads the cut of a table; nil: there is no trigger. A trigger that does not fire for every insert is
// an error, unless it is disabled.
func ReadCut(q postgres.Querier, table wal.Table, oid uint32) (*Cut, error) {
	rows, err := q.All(fmt.Sprintf(`SELECT coalesce(pg_catalog.obj_description(oid, 'pg_trigger'), ''), tgenabled FROM pg_catalog.pg_trigger
		WHERE tgrelid = %d AND tgname = %s AND NOT tgisinternal`, oid, postgres.QuoteLiteral(postgres.CutoverTrigger)))
	if err != nil {
		return nil, postgres.Classify("look for the trigger of table "+table.String(), err)
	}
	if len(rows) == 0 {
		return nil, nil //nolint:nilnil // no trigger is no error
	}
	cut, err := ParseCut(rows[0][0].Text)
	switch state := rows[0][1].Text; {
	case err != nil:
	case state == "D":
		cut.Off = true
	case state != "A":
		err = fmt.Errorf("trigger %s does not fire for every insert", postgres.CutoverTrigger)
	}
	if err != nil {
		return nil, CutError(table, err, "find out who changed it; rows since then that have no mark are sent by the publisher and by the relay")
	}
	return cut, nil
}

// CutError is one about the trigger of a table.
func CutError(table wal.Table, err error, hint string) error {
	return &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonCutoverTrigger, Op: "look at", Subject: "table " + table.String(), Err: err, Hint: hint}
}
