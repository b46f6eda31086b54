package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/deadletter/restore"
	"github.com/cdc-relay/cdc-relay/explain"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	letterstopic "github.com/cdc-relay/cdc-relay/sink/letters"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/spf13/cobra"
)

func (a *app) deadletterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deadletter",
		Short: "List, show and re-drive dead letters: rows that could not be delivered",
		Long: `deadletter reads relay.dead_letter_topic; only redrive --yes changes anything. The relay
may run at the same time. Dead letters that were re-driven or discarded stay in the topic,
with a marker after them.

Exit codes: 0 done, also when no dead letter matches; 1 the brokers do not answer, a dead
letter was not re-driven, a dry run finds none that can be re-driven, or there is no dead
letter at --partition and --offset; 2 usage or configuration; 3 the brokers refuse, the
topic does not exist, or another redrive of the same source is running.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return &advice.Usage{Err: errors.New("deadletter needs a subcommand: list, show or redrive")}
		},
	}
	cmd.AddCommand(a.deadletterList(), a.deadletterShow(), a.deadletterRedrive())
	return cmd
}

// letterFlags select letters.
type letterFlags struct {
	reason, table, topic, key, since, lsn string
	source                                string // SYSTEM/DATABASE/SLOT, own or all
	partition                             int32
	offset                                int64
}

// The values of --source beside SYSTEM/DATABASE/SLOT.
const (
	ownSources = "own"
	allSources = "all"
)

// add defines the flags; source is the value of --source when it is not given.
func (f *letterFlags) add(cmd *cobra.Command, source string) {
	flags := cmd.Flags()
	flags.StringVar(&f.source, "source", source, "only letters from this source: own (this configuration's database and slot), all, or `SYSTEM/DATABASE/SLOT` as the list prints it")
	flags.StringVar(&f.reason, "reason", "", "only letters with this reason, such as record_too_large or parked")
	flags.StringVar(&f.table, "table", "", "only letters of this table, as schema.name")
	flags.StringVar(&f.topic, "topic", "", "only letters whose record was for this topic")
	flags.StringVar(&f.key, "key", "", "only letters with this record key")
	flags.StringVar(&f.since, "since", "", "only letters written since: a duration (2h) or a time (2026-01-31T08:00:00Z)")
	flags.StringVar(&f.lsn, "lsn", "", "only letters of the transaction with this `LSN`, as the list and the log print it")
	flags.Int32Var(&f.partition, "partition", 0, "only letters in this partition of the dead-letter topic")
	flags.Int64Var(&f.offset, "offset", 0, "only the letter at this offset, with --partition")
}

// given are the filters on the command line, as --name. The source is none: it says whose
// letters they are filters of.
func (f *letterFlags) given(cmd *cobra.Command) (names []string) {
	for _, flag := range []string{"reason", "table", "topic", "key", "since", "lsn", "partition", "offset"} {
		if cmd.Flags().Changed(flag) {
			names = append(names, "--"+flag)
		}
	}
	return names
}

func (f *letterFlags) filter(cmd *cobra.Command) (deadletter.Filter, error) {
	given := cmd.Flags().Changed
	for _, flag := range []string{"reason", "table", "topic", "since", "lsn"} {
		if given(flag) && cmd.Flags().Lookup(flag).Value.String() == "" {
			return deadletter.Filter{}, &advice.Usage{Err: fmt.Errorf("--%s is empty; leave it out to select all", flag)}
		}
	}
	out := deadletter.Filter{Reason: f.reason, Table: f.table, Topic: f.topic}
	if given("key") {
		out.Key = []byte(f.key)
	}
	if f.since != "" {
		at, err := time.Parse(time.RFC3339, f.since)
		if d, notDuration := time.ParseDuration(f.since); notDuration == nil {
			if d <= 0 {
				return out, notPositive("since", d)
			}
			at, err = time.Now().Add(-d), nil
		}
		if err != nil {
			return out, &advice.Usage{Err: fmt.Errorf("--since %q is neither a duration like 2h nor a time like 2026-01-31T08:00:00Z", f.since)}
		}
		out.Since = at
	}
	if f.lsn != "" {
		lsn, err := wal.ParseLSN(f.lsn)
		if err != nil || lsn == 0 {
			return out, &advice.Usage{Err: fmt.Errorf("--lsn %q is no position like 16/B374D848", f.lsn)}
		}
		out.Commit = lsn
	}
	if _, name, _ := strings.Cut(f.source, "/"); f.source != ownSources && f.source != allSources && name == "" { // consumers have others than relays
		return out, &advice.Usage{Err: fmt.Errorf("--source %q is not allowed; allowed: own, all, or SYSTEM/DATABASE/SLOT as `cdc-relay deadletter list` names it", f.source)}
	}
	if given("partition") {
		if f.partition < 0 {
			return out, &advice.Usage{Err: fmt.Errorf("--partition %d is not allowed; allowed: 0 or more", f.partition)}
		}
		out.Partition = &f.partition
	}
	if given("offset") {
		if f.offset < 0 {
			return out, &advice.Usage{Err: fmt.Errorf("--offset %d is not allowed; allowed: 0 or more", f.offset)}
		}
		if !given("partition") {
			return out, &advice.Usage{Err: errors.New("--offset counts in one partition; give --partition too")}
		}
		out.Offset = &f.offset
	}
	return out, nil
}

// atMost is the value of --limit.
type atMost int

func (n *atMost) String() string { return strconv.Itoa(int(*n)) }
func (n *atMost) Type() string   { return "int" }

func (n *atMost) Set(text string) error {
	given, err := strconv.Atoi(text)
	if err != nil || given < 1 {
		return errors.New("allowed: 1 or more")
	}
	*n = atMost(given)
	return nil
}

func (n *atMost) add(cmd *cobra.Command, usual int) {
	*n = atMost(usual)
	cmd.Flags().Var(n, "limit", "print only the newest `n`")
}

// newest are those set aside last, the newest at the end. The topic is in order within
// each partition only.
func (n *atMost) newest(found []*deadletter.Entry) []*deadletter.Entry {
	slices.SortFunc(found, deadletter.Older)
	return found[max(0, len(found)-int(*n)):]
}

// letters is what the commands have in common.
type letters struct {
	app      *app
	cfg      *config.Config
	settings relay.Config
	backlog  *deadletter.Backlog
	filter   deadletter.Filter
	source   string // of --source
	sources  *restore.Sources
}

// selectSource is the filter for --source; it is nil for all sources.
func (l *letters) selectSource(ctx context.Context) (func(string) bool, error) {
	switch l.source {
	case allSources:
		return nil, nil
	case ownSources:
		if err := l.sources.Identify(ctx); err != nil {
			return nil, fmt.Errorf("%w; PostgreSQL's system identifier and the database's OID select the dead letters of this configuration; without PostgreSQL, name their source with --source SYSTEM/DATABASE/SLOT (and --without-lock to re-drive them)", err)
		}
		return l.sources.Own, nil
	}
	return func(source string) bool { return source == l.source }, nil
}

func (a *app) readLetters(cmd *cobra.Command, flags *letterFlags) (*letters, error) {
	filter, err := flags.filter(cmd)
	if err != nil {
		return nil, err
	}
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	a.warn(cfg)
	l := &letters{app: a, cfg: cfg, settings: cfg.Relay(), source: flags.source}
	l.sources = restore.NewSources(l.settings.Replication)
	if filter.Source, err = l.selectSource(cmd.Context()); err != nil {
		return nil, err
	}
	l.filter = filter
	if err := l.read(cmd.Context()); err != nil {
		return nil, err
	}
	if n := l.backlog.Foreign; n > 0 {
		what := wording.Count(n, "record") + map[bool]string{true: " of topic %s is neither dead letter nor marker", false: " of topic %s are neither dead letters nor markers"}[n == 1]
		fmt.Fprintf(a.stderr, "cdc-relay: warning: "+what+": somebody else writes to it\n", l.settings.DeadLetterTopic)
	}
	if err := letterstopic.Kept(cmd.Context(), l.settings.Kafka.Connection, l.settings.DeadLetterTopic); err != nil {
		fmt.Fprintf(a.stderr, "cdc-relay: warning: %v; letters may be gone already\n", err)
	}
	return l, nil
}

// read takes the letters as they are in the topic now.
func (l *letters) read(ctx context.Context) (err error) {
	began, told := time.Now(), false
	waits := func() {
		if told || time.Since(began) < 2*time.Second {
			return
		}
		told = true
		fmt.Fprintf(l.app.stderr, "cdc-relay: waiting up to %s for the end of topic %s: an open Kafka transaction hides it, or the brokers do not answer\n", deadletter.OpenPatience, l.settings.DeadLetterTopic)
	}
	l.backlog, err = deadletter.ReadBacklog(ctx, l.settings.Kafka.Connection, l.settings.DeadLetterTopic, l.filter, waits)
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("read topic %s: %s; nothing was changed", l.settings.DeadLetterTopic, restore.Cause(context.Cause(ctx)))
	case err != nil:
		return brokersRefuse(err)
	}
	return nil
}

// brokersRefuse sorts what the brokers answered: what is merely away is worth another
// try.
func brokersRefuse(err error) error {
	e, ok := errors.AsType[*sink.Error](err)
	if !ok || e.Class == sink.Retry {
		return broker.AdviseReachable(err)
	}
	if e.Reason == fault.ReasonUnknownTopic {
		return &advice.Refused{Err: fmt.Errorf("%w; or there is no dead letter yet: with relay.on_reject: dead_letter `cdc-relay setup` creates the topic", err)}
	}
	return &advice.Refused{Err: err}
}

// there refuses a place of the command line that has no letter. Whatever else
// matches nothing is no failure: what was to be re-driven may have been.
func (l *letters) there() error {
	f := &l.filter
	if f.Offset == nil || slices.ContainsFunc(l.backlog.Entries, func(e *deadletter.Entry) bool {
		return e.Location() == deadletter.Location{Partition: *f.Partition, Offset: *f.Offset}
	}) {
		return nil
	}
	return fmt.Errorf("no dead letter at partition %d, offset %d (%d in topic %s); `cdc-relay deadletter list --all` names their places",
		*f.Partition, *f.Offset, len(l.backlog.Entries), l.settings.DeadLetterTopic)
}

// letterReport is a letter as JSON; what concerns the record itself is there only
// when it was asked for.
type letterReport struct {
	Partition int32           `json:"partition"`
	Offset    int64           `json:"offset"`
	Time      time.Time       `json:"time"`
	Reason    string          `json:"reason"`
	Table     string          `json:"table"`
	TableOID  uint32          `json:"table_oid,omitempty"`
	IDColumn  string          `json:"id_column,omitempty"` // that has the event id
	Topic     string          `json:"topic"`
	LSN       string          `json:"lsn"`
	Seq       uint64          `json:"seq"`
	Timeline  int32           `json:"timeline,omitempty"`
	Source    string          `json:"source"`
	EventID   string          `json:"event_id"`
	Bytes     int64           `json:"value_bytes"`
	Missing   []string        `json:"missing,omitempty"`
	State     string          `json:"state"` // waiting, sent or discarded
	Message   string          `json:"message,omitempty"`
	Record    *explain.Record `json:"record,omitempty"`
	Holds     string          `json:"value_holds,omitempty"` // message_body: not the record's value
	absent    bool            // the value was too large for the letter
}

func newLetterReport(e *deadletter.Entry) *letterReport {
	r := &letterReport{
		Partition: e.Partition, Offset: e.Offset, Time: e.At.UTC(), Reason: e.Reason, Table: e.Table, TableOID: e.Of.OID, IDColumn: e.Of.ID.Name, Topic: e.Record.Topic,
		LSN: e.Commit.String(), Seq: e.Ordinal, Timeline: e.Timeline, Source: e.Source, EventID: e.Event, Bytes: max(int64(e.Size), e.ValueBytes), Missing: e.Missing, State: e.Done,
	}
	if e.Body != nil {
		r.Holds = "message_body"
	}
	if r.State == "" {
		r.State = "waiting"
	}
	return r
}

func (a *app) deadletterList() *cobra.Command {
	var flags letterFlags
	var all, asJSON bool
	var limit atMost
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Print one line per waiting dead letter, newest last: topic and event id, no key or value",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.readLetters(cmd, &flags)
			if err != nil {
				return err
			}
			found := l.matched(all)
			if len(found) == 0 {
				l.hint(all)
			}
			shown := limit.newest(found)
			if asJSON {
				reports := []*letterReport{}
				for _, e := range shown {
					reports = append(reports, newLetterReport(e))
				}
				return a.printJSON(map[string]any{"topic": l.settings.DeadLetterTopic, "matched": len(found), "letters": reports})
			}
			return l.list(shown, len(found), all)
		},
	}
	flags.add(cmd, allSources)
	cmd.Flags().BoolVar(&all, "all", false, "also letters that were re-driven or discarded")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	limit.add(cmd, 100)
	return cmd
}

// matched are the letters that the filter selects.
func (l *letters) matched(all bool) (found []*deadletter.Entry) {
	for _, e := range l.backlog.Entries {
		if e.Matched && (all || e.Done == "") {
			found = append(found, e)
		}
	}
	return found
}

func (l *letters) list(shown []*deadletter.Entry, matched int, all bool) error {
	out := l.app.stdout
	if len(shown) > 0 {
		lines := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(lines, "PARTITION\tOFFSET\tTIME\tREASON\tTABLE\tTOPIC\tLSN/SEQ\tEVENT ID\tBYTES\tSTATE\tSOURCE")
		for _, e := range shown {
			r := newLetterReport(e)
			fmt.Fprintf(lines, "%d\t%d\t%s\t%s\t%s\t%s\t%s/%d\t%s\t%d\t%s\t%s\n", r.Partition, r.Offset, r.Time.Format(time.RFC3339),
				wording.Printable(r.Reason), wording.Printable(r.Table), cmp.Or(wording.Printable(r.Topic), "-"), r.LSN, r.Seq, cmp.Or(wording.Printable(r.EventID), "-"), r.Bytes, r.State, wording.Printable(r.Source))
		}
		if err := lines.Flush(); err != nil {
			return err
		}
	}
	what := "waiting"
	if all {
		what = "in all"
	}
	fmt.Fprintf(out, "%d of %s %s in topic %s%s\n", len(shown), wording.Count(matched, "dead letter"), what, l.settings.DeadLetterTopic, l.besides(matched, all))
	return nil
}

// besides counts the letters that the filter leaves out, so that none reads as none there.
func (l *letters) besides(matched int, all bool) string {
	if all {
		if n := len(l.backlog.Entries); n > matched {
			return fmt.Sprintf("; %d are there with those that do not match", n)
		}
		return ""
	}
	if n := l.waiting(); n > matched {
		return fmt.Sprintf("; %d wait there with those that do not match", n)
	}
	return ""
}

// hint says on standard error why nothing is selected.
func (l *letters) hint(done bool) {
	named := l.source
	if named == ownSources || named == allSources {
		named = ""
	}
	for _, hint := range deadletter.Hints(l.backlog, &l.filter, named, done) {
		fmt.Fprintf(l.app.stderr, "cdc-relay: hint: %s\n", hint)
	}
}

// waiting is how many letters wait, whatever the filter selects.
func (l *letters) waiting() (n int) {
	for _, e := range l.backlog.Entries {
		if e.Done == "" {
			n++
		}
	}
	return n
}

func (a *app) deadletterShow() *cobra.Command {
	var flags letterFlags
	var payload, asJSON bool
	var limit atMost
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print everything about dead letters: reason, source, key and headers; --payload adds the value",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.readLetters(cmd, &flags)
			if err != nil {
				return err
			}
			if err := l.there(); err != nil {
				return err
			}
			found := l.matched(true)
			if len(found) == 0 {
				l.hint(true)
			}
			return l.show(cmd.Context(), limit.newest(found), len(found), payload, asJSON)
		},
	}
	flags.add(cmd, allSources)
	cmd.Flags().BoolVar(&payload, "payload", false, "print the value too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	limit.add(cmd, 10)
	return cmd
}

func (l *letters) show(ctx context.Context, entries []*deadletter.Entry, matched int, payload, asJSON bool) error {
	whole, err := deadletter.ReadLetters(ctx, l.settings.Kafka.Connection, l.settings.DeadLetterTopic, entries)
	if err != nil {
		return brokersRefuse(err)
	}
	reports := []*letterReport{}
	for _, e := range entries {
		letter, ok := whole[e.Location()]
		if !ok {
			continue // expired meanwhile
		}
		r := newLetterReport(e)
		r.Message = letter.Message
		r.Record = explain.NewRecord("the letter", &letter.Record)
		r.absent = letter.ValueBytes > 0
		r.Record.Value.Hidden = !payload || r.absent
		reports = append(reports, r)
	}
	if asJSON {
		return l.app.printJSON(map[string]any{"topic": l.settings.DeadLetterTopic, "matched": matched, "letters": reports})
	}
	for _, r := range reports {
		if err := l.showOne(r, payload); err != nil {
			return err
		}
	}
	fmt.Fprintf(l.app.stdout, "\n%d of %s of topic %s%s\n", len(reports), wording.Count(matched, "dead letter"), l.settings.DeadLetterTopic, unmatched(matched, len(l.backlog.Entries)))
	return nil
}

// unmatched distinguishes a filter that matches nothing from a topic that has nothing.
func unmatched(matched, all int) string {
	if matched > 0 || all == 0 {
		return ""
	}
	return fmt.Sprintf(": none of the %d there matches", all)
}

func (l *letters) showOne(r *letterReport, payload bool) error {
	fmt.Fprintf(l.app.stdout, "\npartition %d, offset %d: %s, %s\n", r.Partition, r.Offset, wording.Printable(r.Reason), r.State)
	lines := tabwriter.NewWriter(l.app.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(lines, "  why\t%s\n  set aside\t%s\n  row\t%s, row %d of the transaction committing at %s, from %s\n",
		wording.Printable(r.Message), r.Time.Format(time.RFC3339), wording.Printable(r.Table), r.Seq, r.LSN, wording.Printable(r.Source))
	if r.IDColumn != "" {
		fmt.Fprintf(lines, "  found by\tcolumn %s of the table with OID %d\n", wording.Printable(r.IDColumn), r.TableOID)
	}
	if len(r.Missing) > 0 {
		fmt.Fprintf(lines, "  missing\t%s\n", strings.Join(r.Missing, ", "))
	}
	fmt.Fprintf(lines, "  topic\t%s\n  key\t%v\n", cmp.Or(wording.Printable(r.Topic), "-"), r.Record.Key)
	for i, h := range r.Record.Headers {
		lead := "headers"
		if i > 0 {
			lead = ""
		}
		fmt.Fprintf(lines, "  %s\t%s: %v\n", lead, wording.Printable(h.Name), h.Value)
	}
	if r.Holds != "" {
		fmt.Fprintln(lines, "  value holds\tthe whole body of the logical message; redrive routes it with the present configuration")
	}
	switch {
	case r.absent:
		fmt.Fprintf(lines, "  value\tnot here: its %s were too many for the topic; redrive reads it from the table\n", wording.Count(r.Bytes, "byte"))
	case payload:
		fmt.Fprintf(lines, "  value\t%v\n", r.Record.Value)
	default:
		fmt.Fprintf(lines, "  value\t%s; --payload prints it\n", wording.Count(r.Bytes, "byte"))
	}
	return lines.Flush()
}
