package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// patch replaces one place of the relay's source in a build of its own. The
// source itself stays as it is, and carries no hooks for tests.
type patch struct{ file, old, new string }

// patched returns the files that patches change, by path below the module. Files of extra
// are added.
func patched(root string, patches []patch, extra map[string]string) (map[string]string, error) {
	texts := maps.Clone(extra)
	if texts == nil {
		texts = map[string]string{}
	}
	for _, p := range patches {
		text, known := texts[p.file]
		if !known {
			content, err := os.ReadFile(filepath.Join(root, p.file))
			if err != nil {
				return nil, err
			}
			text = string(content)
		}
		if n := strings.Count(text, p.old); n != 1 {
			return nil, fmt.Errorf("%s has %q %d times, not once: the patch has to follow the source", p.file, p.old, n)
		}
		texts[p.file] = strings.Replace(text, p.old, p.new, 1)
	}
	return texts, nil
}

// overlay writes the patched files and returns the flag with which the compiler reads them.
func overlay(ctx context.Context, dir string, patches []patch, extra map[string]string) (flag string, err error) {
	root, err := moduleDir(ctx)
	if err != nil {
		return "", err
	}
	texts, err := patched(root, patches, extra)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range texts {
		to := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return "", err
		}
		if to, err = filepath.Abs(to); err != nil {
			return "", err
		}
		replace[filepath.Join(root, name)] = to
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file, err := filepath.Abs(filepath.Join(dir, "overlay.json"))
	if err != nil {
		return "", err
	}
	return "-overlay=" + file, os.WriteFile(file, list, 0o644)
}

func moduleDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// failpoint is a named step of the relay at which it can be made to die.
type failpoint struct {
	name  string
	about string
	patch
	only string // the guarantee with which the relay comes there; empty: either
}

// comes says that a relay with a guarantee gets to the step.
func (f failpoint) comes(guarantee string) bool { return f.only == "" || f.only == guarantee }

// onlyWith marks steps that a relay with the other guarantee does not have.
func onlyWith(guarantee string, f failpoint) failpoint {
	f.only = guarantee
	return f
}

// at puts the failpoint behind a place of the source, which stays as it is.
func at(name, about, file, place string) failpoint {
	return failpoint{name: name, about: about, patch: patch{file, place, place + "\n\tfailpoint(\"" + name + "\")\n"}}
}

func ahead(name, about, file, place string) failpoint {
	return failpoint{name: name, about: about, patch: patch{file, place, "failpoint(\"" + name + "\")\n\t" + place}}
}

// failpoints are the steps between which a position could be confirmed too early, or
// a transaction committed twice. Plans name them by their place here: append. Names
// in start are come to once in a session.
var failpoints = []failpoint{
	at("read", "bytes were read from the server", "replication/frames.go", "n, err := f.src.Read(f.buf[f.w:])"),
	at("begin", "a transaction begins", "replication/pgoutput/decoder.go", "d.txn = wal.Txn{XID: xid, Commit: commit, Time: wireTime(at)}"),
	ahead("commit_decoded", "a commit was decoded and is not sealed", "replication/pgoutput/decoder.go", "b.Transactions++"),
	at("batch_taken_from_decoder", "a batch is about to be handed on", "replication/stream.go", "s.status.handed = max(s.status.handed, b.Through)"),
	ahead("start_requested", "before START_REPLICATION", "replication/open.go", "err := s.requestCopy()"),
	at("started", "after START_REPLICATION", "replication/open.go", "err := s.requestCopy()"),
	ahead("before_status", "a position is about to be told to the server", "replication/status.go", "_, err := s.conn.Write(msg)"),
	at("after_status", "a position was told to the server", "replication/status.go", "_, err := s.conn.Write(msg)"),
	at("routed", "a batch was routed and is not tracked", "relay/session.go", "refusal := s.delivery.Route(f)"),
	ahead("tracked", "an entry is about to join the queue", "checkpoint/tracker.go", "seq := t.next\n"),
	ahead("before_send", "records are about to go to the sink", "relay/delivery/in_flight.go", "d.shown.waits.Set(time.Now())"),
	onlyWith(atLeastOnce, ahead("before_produce", "one record is about to go to the client", "sink/kafka/send.go", "c.Produce(context.Background(), &f.kafka[i], k.onSettled)")),
	onlyWith(atLeastOnce, ahead("in_promise", "a broker's answer for one record came", "sink/kafka/send.go", "rc := r.Context.(*recordContext)")),
	ahead("before_acknowledged", "all of a batch is durable and not yet counted", "relay/delivery/in_flight.go", "f.ticket.Done()"),
	at("acknowledged", "all of a batch is counted", "relay/delivery/in_flight.go", "f.ticket.Done()"),
	ahead("before_last_word", "a stop is about to tell the last position", "relay/session_end.go", "closed := s.src.Close(final, s.confirmed())"),
	at("after_last_word", "a stop told the last position", "relay/session_end.go", "closed := s.src.Close(final, s.confirmed())"),

	onlyWith(exactlyOnce, ahead("before_transaction", "a Kafka transaction is about to begin", "sink/kafkatx/session.go", "if err := s.client.BeginTransaction(); err != nil {")),
	onlyWith(exactlyOnce, ahead("records_produced", "the records are with the client, the position is not", "sink/kafkatx/session.go", "rec := &kgo.Record{Topic: s.sink.cfg.CheckpointTopic,")),
	onlyWith(exactlyOnce, ahead("position_produced", "the position is with the client, and not awaited yet", "sink/kafkatx/session.go", "if err := s.flush(); err != nil {")),
	onlyWith(exactlyOnce, ahead("before_end", "records and position are with the brokers, the transaction is open", "sink/kafkatx/session.go", "if err := s.client.commit(context.Background()); err != nil {")),
	onlyWith(exactlyOnce, ahead("after_end", "the commit was answered, and nobody knows", "sink/kafkatx/session.go", "s.sealed()\n\treturn nil")),
	onlyWith(exactlyOnce, at("position_known", "the committed position may be told to the server", "relay/delivery/exactly_once.go", "x.committedEnd.Store(uint64(max(pos.End, wal.LSN(x.committedEnd.Load()))))")),
	onlyWith(exactlyOnce, ahead("start_fence", "the predecessor is about to be shut out", "sink/kafkatx/open.go", "if err := t.fence(ctx, client); err != nil {")),
	onlyWith(exactlyOnce, ahead("start_settle", "the predecessor is shut out, the record behind his is not committed", "sink/kafkatx/open.go", "if err := client.commit(ctx); err != nil {")),
	onlyWith(exactlyOnce, ahead("start_settled", "the outcome of the last transaction is about to be read", "sink/kafkatx/open.go", "return t.last(ctx, h.Key, at)")),
}

// failpointVariable is NAME:N; the process kills itself the Nth time it comes there.
const failpointVariable = "CDC_RELAY_FAILPOINT"

const failpointSource = `package %s

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var failpointName, failpointLeft = func() (string, *atomic.Int64) {
	name, n, _ := strings.Cut(os.Getenv("` + failpointVariable + `"), ":")
	left := new(atomic.Int64)
	times, _ := strconv.ParseInt(n, 10, 64)
	left.Store(times)
	return name, left
}()

func failpoint(name string) {
	if name == failpointName && failpointLeft.Add(-1) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
`

// buildFailpoints makes a relay that dies where it is told to.
func buildFailpoints(ctx context.Context, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	merged, extra, err := failpointPatches()
	if err != nil {
		return "", err
	}
	flag, err := overlay(ctx, dir, merged, extra)
	if err != nil {
		return "", err
	}
	return build(ctx, dir, flag)
}

// failpointPatches put all failpoints into one build.
func failpointPatches() (merged []patch, extra map[string]string, err error) {
	var patches []patch
	extra = map[string]string{}
	for _, f := range slices.Concat(failpoints, oldFailpoints, upkeepFailpoints) {
		patches = append(patches, f.patch)
		folder := filepath.Dir(f.file)
		extra[folder+"/failpoint.go"] = fmt.Sprintf(failpointSource, filepath.Base(folder))
	}
	merged, err = merge(patches)
	return merged, extra, err
}

// merge joins a step's "before" and "after" at one place of the source.
func merge(patches []patch) ([]patch, error) {
	var merged []patch
	places := map[string]int{}
	for _, p := range patches {
		key := p.file + "\n" + p.old
		if i, twice := places[key]; twice {
			before, after := merged[i].new, p.new
			if strings.HasSuffix(after, p.old) {
				before, after = after, before
			}
			if !strings.HasSuffix(before, p.old) || !strings.HasPrefix(after, p.old) {
				return nil, fmt.Errorf("two failpoints on one side of %q", p.old)
			}
			merged[i].new = strings.TrimSuffix(before, p.old) + after
			continue
		}
		places[key] = len(merged)
		merged = append(merged, p)
	}
	return merged, nil
}
