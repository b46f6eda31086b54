package audit

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/audit/match"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
)

// Output is where an audit speaks: the result to Result, what happens meanwhile to Meanwhile. With
// JSON each is a line with one object.
type Output struct {
	Result, Meanwhile io.Writer
	JSON              bool
}

// Line is one object of the JSON output.
type Line struct {
	What string  `json:"what"` // progress, warning, result
	Text string  `json:"text"`
	Rows int64   `json:"rows,omitempty"`
	Rate float64 `json:"rows_per_second,omitempty"`

	Result *Result `json:"result,omitempty"`
}

// Result is what an audit found.
type Result struct {
	Tables   []string         `json:"tables"`
	Fence    string           `json:"lsn"` // every row committed before, and every slot has passed it
	Expect   string           `json:"expect"`
	Rows     int64            `json:"rows"`
	Proven   int64            `json:"proven"`
	Faults   int64            `json:"faults"`
	Verdicts map[string]int64 `json:"verdicts"`
	Topics   int              `json:"topics"`
	Records  int64            `json:"records"` // with the event id of somebody
	Extra    int64            `json:"extra"`   // of no row that was looked at
	Foreign  int64            `json:"foreign"` // without an event id
	Resent   int64            `json:"resent"`  // sent again on purpose
	Late     int64            `json:"late"`    // rows whose record was sent late or again: their order is not compared
	Limits   []string         `json:"limits"`  // what could not be compared
	Findings []Finding        `json:"findings"`
	Advice   []string         `json:"advice,omitempty"`
	DiskUsed int64            `json:"disk_used_bytes"`
	Seconds  float64          `json:"seconds"`
}

// Finding is a row that is not simply proven. It never shows what a record or a row holds.
type Finding struct {
	Verdict   match.Verdict `json:"verdict"`
	Table     string        `json:"table"`
	ID        string        `json:"id,omitempty"`        // of the event, with Options.ShowIDs
	IDSHA256  string        `json:"id_sha256,omitempty"` // of the event's id, the first 16 digits
	Topic     string        `json:"topic"`               // where the mapping sends the row
	Part      string        `json:"part,omitempty"`      // that differs
	Records   int           `json:"records,omitempty"`
	InTopic   string        `json:"in_topic,omitempty"` // where a record is, if it is elsewhere
	Partition *int32        `json:"partition,omitempty"`
	Offset    *int64        `json:"offset,omitempty"`
	LSN       string        `json:"lsn,omitempty"` // of its position headers

	table  int
	number uint64
}

// FaultsError is the error of an audit that found faults.
type FaultsError struct{ Faults int64 }

func (e *FaultsError) Error() string {
	return "the audit found " + wording.Count(e.Faults, "fault")
}

// maxFindings is how many of each verdict are named.
const maxFindings = 100

// shownFindings is how many of them people see without a report.
const shownFindings = 5

func (o *Output) say(l Line) {
	to, prefix := o.Meanwhile, ""
	switch l.What {
	case "result":
		to = o.Result
	case "warning":
		prefix = "cdc-relay: warning: "
	}
	if !o.JSON {
		fmt.Fprintln(to, prefix+wording.Printable(l.Text))
		return
	}
	_ = json.NewEncoder(to).Encode(l) // what nobody takes is nobody's loss
}

func (o *Output) show(r *Result, once bool) {
	if o.JSON {
		o.say(Line{What: "result", Text: r.last(), Result: r})
		return
	}
	for line := range strings.Lines(r.text(once)) {
		fmt.Fprintln(o.Result, wording.Printable(strings.TrimSuffix(line, "\n")))
	}
}

func (r *Result) last() string { return fmt.Sprintf("proven %d of %d", r.Proven, r.Rows) }

var meanings = map[match.Verdict]string{
	match.Missing:       "no record, and the topic would still have it",
	match.Differs:       "the record is not what the mapping makes of the row today",
	match.Twice:         "more than one record",
	match.OutOfOrder:    "the record lies after one of a later row of its key",
	match.Gone:          "no record, and the topic may have removed it: cannot be told",
	match.Waiting:       "no record, and a dead letter waits",
	match.Discarded:     "no record, and its dead letter was discarded",
	match.BeforeSlot:    "no record, perhaps from before the slot: cannot be told",
	match.Rejected:      "the mapping makes no record of the row",
	match.OrderUnclear:  "the record lies after one of a row with a later time",
	match.TwoPartitions: "keys with records in several partitions",
}

// text is the result for people.
func (r *Result) text(once bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s, committed before %s\n", wording.Count(r.Rows, "row"), strings.Join(r.Tables, ", "), r.Fence)
	fmt.Fprintf(&b, "%s in %s, %d of them of other rows, and %d without an event id\n", wording.Count(r.Records, "record"), wording.Count(r.Topics, "topic"), r.Extra, r.Foreign)
	if r.Resent > 0 {
		fmt.Fprintf(&b, "%s sent again on purpose (replay, or backfill --late)\n", wording.Count(r.Resent, "record"))
	}
	if r.Late > 0 {
		fmt.Fprintf(&b, "%s that only replay or backfill --late sent: the order of these rows is not compared\n", wording.Count(r.Late, "row"))
	}
	for _, limit := range r.Limits {
		fmt.Fprintf(&b, "not compared: %s\n", limit)
	}
	for _, v := range match.Verdicts {
		n := r.Verdicts[string(v)]
		if n == 0 {
			continue
		}
		kind := ""
		if v.Fault(once) {
			kind = "FAULT "
		}
		fmt.Fprintf(&b, "%s%s: %d (%s)\n", kind, v, n, meanings[v])
		shown := 0
		for i := range r.Findings {
			f := &r.Findings[i]
			if f.Verdict != v {
				continue
			}
			if shown++; shown > shownFindings {
				break
			}
			b.WriteString("  " + f.text() + "\n")
		}
	}
	for _, advice := range r.Advice {
		b.WriteString(advice + "\n")
	}
	b.WriteString(r.last() + "\n")
	return b.String()
}

func (f *Finding) text() string {
	text := f.Table + " id "
	switch {
	case f.ID != "":
		text += f.ID
	case f.IDSHA256 != "":
		text += "sha256:" + f.IDSHA256
	default:
		text += "unknown"
	}
	text += ", topic " + f.Topic
	if f.InTopic != "" {
		text += ", record in " + f.InTopic
	}
	if f.Partition != nil {
		text += fmt.Sprintf(", partition %d offset %d", *f.Partition, *f.Offset)
	}
	if f.LSN != "" {
		text += ", LSN " + f.LSN
	}
	if f.Part != "" {
		text += ", differs in " + f.Part
	}
	if f.Records > 1 {
		text += fmt.Sprintf(", %d records", f.Records)
	}
	return text
}

// add keeps the first findings of each verdict.
func (r *Result) add(f match.Finding, tables, topics []string) {
	kept := 0
	for i := range r.Findings {
		if r.Findings[i].Verdict == f.Verdict {
			kept++
		}
	}
	if kept >= maxFindings {
		return
	}
	found := Finding{Verdict: f.Verdict, Table: tables[f.Table], Topic: topics[f.Topic], Part: f.Part, Records: f.Records, table: f.Table, number: f.Number}
	if f.Found {
		found.Partition, found.Offset = &f.Partition, &f.Offset
		if f.InTopic != f.Topic {
			found.InTopic = topics[f.InTopic]
		}
		if f.LSN != 0 {
			found.LSN = wal.LSN(f.LSN).String()
		}
	}
	r.Findings = append(r.Findings, found)
}

// name gives a finding the id of its event.
func (f *Finding) name(id []byte, shown bool) {
	if shown {
		f.ID = string(id)
		return
	}
	sum := sha256.Sum256(id)
	f.IDSHA256 = hex.EncodeToString(sum[:8])
}

// write writes a report: what was found first, a line for each finding, and the result last.
func (r *Result) write(name string) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return usage("--report: %w", err)
	}
	to := bufio.NewWriter(file)
	lines := json.NewEncoder(to)
	whole := *r
	whole.Findings = nil
	for i := range r.Findings {
		err = firstError(err, lines.Encode(&r.Findings[i]))
	}
	err = firstError(err, lines.Encode(&whole))
	err = firstError(err, to.Flush())
	err = firstError(err, file.Close())
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func firstError(first, next error) error {
	if first != nil {
		return first
	}
	return next
}

// sorted has findings in the order of the verdicts, and of the rows.
func (r *Result) sorted() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(match.Verdicts, a.Verdict), slices.Index(match.Verdicts, b.Verdict)), cmp.Compare(a.table, b.table), cmp.Compare(a.number, b.number))
	})
}
