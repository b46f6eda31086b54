package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/parity/golden"
)

// Connect is a Kafka Connect worker that runs the cases of one lane, one after
// the other.
type Connect struct {
	lane   *Lane
	log    *logLines
	worker *sandbox.Debezium // nil until the first case
	set    string            // the worker's settings, as in worker.properties
	used   map[string]bool   // names whose offsets the worker may have

	registry *sandbox.Registry // of the case; nil: it has none
	plugins  string            // where the registry's converter is
}

// NewConnect starts nothing yet. log may be nil.
func (l *Lane) NewConnect(log io.Writer) *Connect {
	return &Connect{lane: l, log: &logLines{to: log}, used: map[string]bool{}}
}

// Close ends the worker and the registry.
func (c *Connect) Close() error { return errors.Join(c.closeWorker(), c.closeRegistry()) }

func (c *Connect) closeWorker() error {
	if c.worker == nil {
		return nil
	}
	defer func() { c.worker = nil }()
	return c.worker.Close()
}

// Captured is what a real Debezium made of a case.
type Captured struct {
	Records []golden.Record // all of them, with what is volatile
	Error   string          // as in expected-error.txt; empty: it did not fail
	Schemas []byte          // of the registry, as in expected-schemas.jsonl
	Notes   []Note
	Log     []string // warnings and errors of the worker
}

// Note is an observation on the way.
type Note struct {
	At           string   `json:"at"`
	Tasks        []string `json:"task_state"`
	SlotActive   bool     `json:"slot_active"`
	Unconfirmed  int      `json:"unconfirmed_inserts"` // that the slot would deliver again
	RecordsSoFar int      `json:"records_in_kafka"`
}

// CaptureWith says when a capture is over.
type CaptureWith struct {
	// Enough is a number of records behind which nothing more is expected, so that
	// a short silence will do; zero: not known.
	Enough int
}

const (
	quiet       = 3 * time.Second  // without a record: nothing more comes
	quietFewer  = 10 * time.Second // when the case has more records than arrived
	quietEnough = 300 * time.Millisecond
	failsWithin = 90 * time.Second
)

// Capture runs a case through Debezium.
func (c *Connect) Capture(ctx context.Context, g *golden.Case, with CaptureWith) (*Captured, error) {
	began := time.Now()
	if err := c.lane.Reset(ctx, g.Topics); err != nil {
		return nil, err
	}
	if err := c.converted(ctx, g); err != nil {
		return nil, err
	}
	if err := c.ready(ctx, g); err != nil {
		return nil, err
	}
	s := NewScript(c.lane.URL())
	defer s.Close()
	if err := s.Play(ctx, g.Schema, nil); err != nil {
		return nil, fmt.Errorf("schema.sql: %w", err)
	}
	r := &capture{Connect: c, g: g, with: with, name: g.Name}
	defer r.leave()
	c.log.reset()
	if err := r.post(ctx); err != nil {
		return nil, err
	}
	if err := s.Play(ctx, g.Script, r); err != nil {
		return nil, fmt.Errorf("dml.sql: %w", err)
	}
	if err := r.finish(ctx); err != nil {
		return nil, err
	}
	var err error
	if r.out.Records, err = c.lane.Records(ctx); err != nil {
		return nil, err
	}
	if r.out.Schemas, err = c.schemas(ctx); err != nil {
		return nil, err
	}
	markVolatile(g, r.out.Records, began, time.Now())
	r.out.Log = c.log.distinct()
	return &r.out, nil
}

// ready has a worker run with a case's settings, which has not seen the case's
// name.
func (c *Connect) ready(ctx context.Context, g *golden.Case) error {
	if c.worker != nil && (c.used[g.Name] || c.worker.Pid() == 0) {
		if err := c.closeWorker(); err != nil {
			return err
		}
		clear(c.used)
	}
	settings := c.settings(g)
	if c.worker == nil {
		worker, err := sandbox.StartDebezium(ctx, sandbox.DebeziumOptions{Brokers: c.lane.brokers, Worker: properties(settings), Log: c.log})
		c.worker, c.set = worker, settings
		return err
	}
	if settings == c.set {
		return nil
	}
	if err := c.worker.Stop(20 * time.Second); err != nil && !errors.Is(err, sandbox.ErrKilled) {
		return err // what a worker that was killed had not stored, no case asks for again
	}
	c.worker.Configure(properties(settings))
	c.set = settings
	return c.worker.Start(ctx)
}

func properties(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			all[name] = value
		}
	}
	return all
}

// capture is one case under way.
type capture struct {
	*Connect
	g    *golden.Case
	with CaptureWith
	name string // of the connector
	last bool   // the script is over
	out  Captured
}

// post makes the connector and waits until it streams or has failed.
func (r *capture) post(ctx context.Context) error {
	connector, err := r.connector(r.g, r.name)
	if err != nil {
		return err
	}
	r.used[r.name] = true
	err = r.worker.Post(ctx, connector)
	var refused *sandbox.ConnectError
	if errors.As(err, &refused) {
		r.out.Error, err = r.refusal(ctx, refused, connector)
		return err
	}
	if err != nil {
		return err
	}
	return r.awaitStream(ctx)
}

// refusal adds to the worker's answer what it finds wrong with each key.
func (r *capture) refusal(ctx context.Context, refused *sandbox.ConnectError, connector []byte) (string, error) {
	var posted struct {
		Config map[string]string `json:"config"`
	}
	if err := json.Unmarshal(connector, &posted); err != nil {
		return "", err
	}
	posted.Config["name"] = r.name
	problems, err := r.worker.Validate(ctx, posted.Config)
	text := fmt.Sprintf("POST /connectors -> HTTP %d\n%s", refused.Status, refused.Message)
	for _, problem := range problems {
		text += "\nvalidate: " + problem
	}
	return text, err
}

// awaitStream waits until somebody holds the slot, or the connector failed.
func (r *capture) awaitStream(ctx context.Context) error {
	limit := time.Minute
	if r.g.Hints.StartTimeout > 0 {
		limit = seconds(r.g.Hints.StartTimeout)
	}
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		state, err := r.state(ctx)
		if err != nil {
			return err
		}
		if _, failed := state.Failed(); failed {
			return nil
		}
		if state.Running() {
			active, _, err := r.slot(ctx)
			if err != nil || active {
				return err
			}
		}
		if err := Wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	if r.g.Hints.StartTimeout > 0 {
		return nil // the case is about a connector that never streams
	}
	return fmt.Errorf("connector %s does not stream after %s", r.name, limit)
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// state is that of the connector; the zero one when there is none, or no worker.
func (r *capture) state(ctx context.Context) (sandbox.ConnectorState, error) {
	if r.worker.Pid() == 0 {
		return sandbox.ConnectorState{}, nil
	}
	state, err := r.worker.State(ctx, r.name)
	var refused *sandbox.ConnectError
	if errors.As(err, &refused) {
		return sandbox.ConnectorState{}, nil
	}
	return state, err
}

// slot looks at the only slot: whether it is in use, and how many inserts it
// would deliver again while it is not.
func (r *capture) slot(ctx context.Context) (active bool, unconfirmed int, err error) {
	conn, err := pgx.Connect(ctx, r.lane.URL())
	if err != nil {
		return false, 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var slot string
	err = conn.QueryRow(ctx, "SELECT slot_name, active FROM pg_replication_slots").Scan(&slot, &active)
	if errors.Is(err, pgx.ErrNoRows) || active {
		return active, 0, nil
	}
	if err != nil {
		return false, 0, err
	}
	config, err := r.g.Config()
	if err != nil {
		return false, 0, err
	}
	publication := config["publication.name"]
	if publication == "" {
		publication = "dbz_publication"
	}
	err = conn.QueryRow(ctx, `
		SELECT count(*) FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', $2)
		WHERE get_byte(data, 0) = ascii('I')`, slot, publication).Scan(&unconfirmed)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == objectInUse {
		return true, 0, nil // somebody took it in between
	}
	return false, unconfirmed, err
}

// Settle waits for a silence of Kafka, or for the connector's failure.
func (r *capture) Settle(ctx context.Context) error { return r.silence(ctx, quiet) }

func (r *capture) silence(ctx context.Context, long time.Duration) error {
	last, since := -1, time.Now()
	for {
		n, err := r.arrived(ctx)
		if err != nil {
			return err
		}
		if n != last {
			last, since = n, time.Now()
		}
		state, err := r.state(ctx)
		if err != nil {
			return err
		}
		if time.Since(since) >= r.patience(state, n, long) {
			return nil
		}
		if err := Wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// patience is how long a silence has to last behind n records.
func (r *capture) patience(state sandbox.ConnectorState, n int, long time.Duration) time.Duration {
	_, failed := state.Failed()
	switch {
	case failed || r.out.Error != "" || r.with.Enough > 0 && n >= r.with.Enough:
		return quietEnough
	case r.last && n < len(r.g.Records) && r.g.Hints.Collapse.Regexp == nil:
		return max(long, quietFewer)
	}
	return long
}

// arrived counts records, without those that come by the clock.
func (r *capture) arrived(ctx context.Context) (int, error) {
	topics, err := r.lane.topics(ctx)
	if err != nil {
		return 0, err
	}
	maps.DeleteFunc(topics, func(name string, _ kadm.TopicDetail) bool { return r.g.Hints.Collapse.Matches(name) })
	return r.lane.Count(ctx, topics.Names()...)
}

func (r *capture) Sleep(ctx context.Context, d time.Duration) error { return Wait(ctx, d) }

func (r *capture) Direct(ctx context.Context, word, argument string) error {
	switch word {
	case "note":
		return r.note(ctx, argument)
	case "stop-connector":
		if err := r.worker.Halt(ctx, r.name); err != nil {
			return err
		}
		return r.stopped(ctx, word)
	case "delete-connector":
		if err := r.worker.Delete(ctx, r.name); err != nil {
			return err
		}
		return r.stopped(ctx, word)
	case "term-worker":
		if err := r.worker.Stop(time.Minute); err != nil {
			return err
		}
		return r.stopped(ctx, word)
	case "kill-worker":
		if err := r.worker.Kill(); err != nil {
			return err
		}
		return r.stopped(ctx, word)
	case "start-connector":
		if err := r.worker.Resume(ctx, r.name); err != nil {
			return err
		}
		return r.awaitStream(ctx)
	case "rename-connector":
		r.name += "-renamed"
		return nil
	case "create-connector":
		return r.post(ctx)
	case "start-worker":
		if err := r.worker.Start(ctx); err != nil {
			return err
		}
		return r.post(ctx)
	}
	return fmt.Errorf("--@ %s: not known here", word)
}

// stopped waits until nobody holds the slot, and notes what is to be seen.
func (r *capture) stopped(ctx context.Context, word string) error {
	for {
		active, _, err := r.slot(ctx)
		if err != nil {
			return err
		}
		if !active {
			return r.note(ctx, "after "+word)
		}
		if err := Wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func (r *capture) note(ctx context.Context, at string) error {
	n := Note{At: at, Tasks: []string{}}
	state, err := r.state(ctx)
	if err != nil {
		return err
	}
	for _, task := range state.Tasks {
		n.Tasks = append(n.Tasks, task.State)
	}
	if r.worker.Pid() == 0 {
		n.Tasks = []string{"WORKER DOWN"}
	}
	if n.SlotActive, n.Unconfirmed, err = r.slot(ctx); err != nil {
		return err
	}
	n.RecordsSoFar, err = r.arrived(ctx)
	r.out.Notes = append(r.out.Notes, n)
	return err
}

// finish waits for the last record, or for the failure that the case is about.
func (r *capture) finish(ctx context.Context) error {
	long := quiet
	if r.g.Hints.Quiet > 0 {
		long = seconds(r.g.Hints.Quiet)
	}
	if r.g.Hints.Fails {
		if err := r.awaitFailure(ctx); err != nil {
			return err
		}
	}
	r.last = true
	if err := r.silence(ctx, long); err != nil {
		return err
	}
	if r.out.Error != "" {
		return nil
	}
	state, err := r.state(ctx)
	if err != nil {
		return err
	}
	trace, _ := state.Failed()
	r.out.Error = causes(trace)
	return nil
}

func (r *capture) awaitFailure(ctx context.Context) error {
	for deadline := time.Now().Add(failsWithin); time.Now().Before(deadline); {
		state, err := r.state(ctx)
		if err != nil {
			return err
		}
		if _, failed := state.Failed(); failed {
			return nil
		}
		if err := Wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("connector %s did not fail within %s", r.name, failsWithin)
}

// leave removes the connector. A worker that does not come free is ended.
func (r *capture) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if r.worker == nil || r.worker.Pid() == 0 {
		return
	}
	err := r.worker.Delete(ctx, r.name)
	var none *sandbox.ConnectError
	if err != nil && !errors.As(err, &none) {
		_ = r.worker.Kill()
	}
}

var (
	stackFrame = regexp.MustCompile(`^\s+(at |\.\.\. \d+ )`)
	clockTime  = regexp.MustCompile(`-?\b(1\d{12}|\d{16,})\b`)
	position   = regexp.MustCompile(`\b(lsn_proc|lsn_commit|lsn|txId)=\d+`)
)

// causes is a trace without stack frames, readings of clocks and places in the log.
func causes(trace string) string {
	var kept []string
	for line := range strings.Lines(trace) {
		if line = strings.TrimRight(line, "\r\n"); line != "" && !stackFrame.MatchString(line) {
			kept = append(kept, position.ReplaceAllString(clockTime.ReplaceAllString(line, "<N>"), "$1=<N>"))
		}
	}
	return strings.Join(kept, "\n")
}
