package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// Letters says that writers write rows that the relay has to reject, and what is to
// become of them.
type Letters struct {
	ParkKey bool `json:"park_key,omitempty"`
	Leave   bool `json:"leave,omitempty"` // what waits in the end goes on waiting
}

// Rows that are rejected: by the topics while their limit is narrow, by the relay's own
// limit at any time, and those of which no topic can be made.
const (
	narrow     = 20_000    // max.message.bytes while rows are refused
	wide       = 4 << 20   // while they are not, and always of the dead-letter topic
	tooLarge   = 50_000    // characters that no compression brings below narrow
	tooHuge    = 2_400_000 // nor these below the relay's 1 MiB
	unroutable = "no topic"
)

// usualLimit is what topics take when no fault lowers it.
func (p Plan) usualLimit() string {
	if p.Letters != nil {
		return strconv.Itoa(narrow)
	}
	return "1048588"
}

// letterBox is what was done to the dead letters of a run.
type letterBox struct {
	mu        sync.Mutex
	discarded map[string]bool // rows
	redrives  []Redrive
}

// Redrive is one call of the command, by whomever it ended.
type Redrive struct {
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
	Args  string    `json:"args"`
	Code  int       `json:"code"` // -1: killed
}

func (w *world) letterTopic() string { return w.slot + "-letters" }

// watched are the topics of which a sample has the ends.
func (w *world) watched() []string {
	if w.plan.Letters == nil {
		return w.topics
	}
	return append(append([]string(nil), w.topics...), w.letterTopic())
}

// limit sets what the topics take.
func (w *world) limit(ctx context.Context, bytes int, topics ...string) error {
	for _, topic := range topics {
		if err := setTopicConfig(ctx, w, topic, "max.message.bytes", strconv.Itoa(bytes)); err != nil {
			return err
		}
	}
	return nil
}

// widen has the topics take what they refused, until the function it returns is called.
func (w *world) widen(ctx context.Context, topics ...string) (narrowed func() error, err error) {
	return func() error { return w.limit(context.WithoutCancel(ctx), narrow, topics...) }, w.limit(ctx, wide, topics...)
}

// refusedRows are n rows for each of three keys, the second of each among them too
// large. The arguments are table, aggregate and n.
const refusedRows = `INSERT INTO %s (id, aggregate_type, aggregate_id, event_type, payload)
	SELECT gen_random_uuid(), '%s', k, 'Burst', CASE WHEN i = 2 THEN jsonb_build_object('s', i, 'noise', noise)
		ELSE jsonb_build_object('s', i) END
	FROM (SELECT gen_random_uuid() AS k FROM generate_series(1, 3)) keys CROSS JOIN generate_series(1, %d) AS i,
		(SELECT string_agg(md5(random()::text), '') AS noise FROM generate_series(1, 1600)) noises ORDER BY k, i`

// refuse writes rows that are refused among others of their keys.
func (w *world) refuse(ctx context.Context, d *Done) error {
	return w.sql(ctx, fmt.Sprintf(refusedRows, "outbox", w.aggregates[d.N%2], 5))
}

// mend makes topics of rows that have none. Half of them, unless it is all.
func (w *world) mend(ctx context.Context, all bool) error {
	return w.sql(ctx, fmt.Sprintf("UPDATE outbox SET aggregate_type = '%s' WHERE aggregate_type = '%s' AND ($1 OR hashtext(id::text) %% 2 = 0)", w.aggregates[0], unroutable), all)
}

// A redrive takes no longer, whatever the brokers do meanwhile.
const redriveLimit = 90 * time.Second

// redrive runs the command with the configuration of a pipeline, and kills it after some
// time unless that is zero.
func (w *world) redrive(ctx context.Context, of []string, kill time.Duration, more ...string) (Redrive, error) {
	args := append(append([]string{"deadletter", "redrive"}, of...), more...)
	r := Redrive{Began: time.Now(), Args: strings.Join(more, " ")}
	code, out, err := w.command(ctx, kill, args...)
	r.Ended, r.Code = time.Now(), code
	w.box.mu.Lock()
	w.box.redrives = append(w.box.redrives, r)
	w.box.mu.Unlock()
	if err == nil && code != 0 && code != 1 && code != 3 && (code != -1 || kill == 0) { // 1 and 3: other faults are about
		w.problem("P11: %s ended with code %d: %s", strings.Join(args, " "), code, out)
	}
	return r, err
}

// command runs one of the relay's commands to its end.
func (w *world) command(ctx context.Context, kill time.Duration, args ...string) (code int, out []byte, err error) {
	file, err := os.CreateTemp(w.dir, "command-*.log")
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	defer file.Close()
	cmd := exec.Command(w.relays.binary, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	cmd.Stdout, cmd.Stderr = file, file
	process, err := sandbox.Run(cmd)
	if err != nil {
		return 0, nil, err
	}
	limit := redriveLimit
	if kill > 0 {
		limit = kill
	}
	select {
	case <-process.Done():
	case <-time.After(limit):
		process.Kill()
	case <-ctx.Done():
		process.Kill()
		return -1, nil, context.Cause(ctx)
	}
	out, err = os.ReadFile(file.Name())
	return process.ExitCode(), out, err
}

// everyLetter selects what can be sent, also what is too large for the relay itself.
var everyLetter = []string{"--all", "--yes", "--set", "kafka.max_message_bytes=4MiB"}

// waiting lists the letters of the relay's own rows that wait.
func (w *world) waiting(ctx context.Context) ([]listed, error) {
	args := append(append([]string{"deadletter", "list"}, w.relays.args...), "--source", "own", "--json", "--limit", "1000")
	code, out, err := w.command(ctx, 0, args...)
	if err != nil || code != 0 { // the brokers are unreachable
		return nil, err
	}
	var answer struct{ Letters []listed }
	if at := strings.IndexByte(string(out), '{'); at >= 0 {
		err = json.Unmarshal(out[at:], &answer)
	}
	return answer.Letters, err
}

// listed is a letter as the command names it.
type listed struct {
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Event     string `json:"event_id"`
}

func (l listed) flags() []string {
	return []string{"--partition", strconv.Itoa(int(l.Partition)), "--offset", strconv.FormatInt(l.Offset, 10)}
}

// clear re-drives everything that waits once nothing is written any more, and sees the
// keys free.
func (w *world) clear(ctx context.Context) error {
	if w.plan.Letters == nil || w.plan.Letters.Leave {
		return nil
	}
	if err := errors.Join(w.limit(ctx, wide, w.topics...), w.mend(ctx, true)); err != nil {
		return err
	}
	var last Redrive
	if !w.await(ctx, settleLimit, func() bool {
		var err error
		last, err = w.redrive(ctx, w.relays.args, 0, everyLetter...)
		return err == nil && last.Code == 0
	}) {
		w.problem("P13: the last redrive ended with code %d", last.Code)
	}
	if !w.await(ctx, 30*time.Second, func() bool { return w.relays.parked(w.relays.leader()) == 0 }) {
		w.problem("P13: the relay says that %d keys are parked, and nothing waits", w.relays.parked(w.relays.leader()))
	}
	return nil
}

// parked is how many keys the relay at a place says are parked.
func (r *relays) parked(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.places[n].status.ParkedKeys
}

// lettersConfig is what the relay is told of them.
func (w *world) lettersConfig() []string {
	if w.plan.Letters == nil {
		return nil
	}
	return []string{"on_reject: dead_letter", "dead_letter_topic: " + w.letterTopic(), fmt.Sprintf("park_key: %t", w.plan.Letters.ParkKey)}
}
