package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/deadletter/restore"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// setAside is a letter that a test writes; a source that begins with _ is a shard of the
// own slot.
type setAside struct {
	source, key, reason, table, topic, timeline string
}

// withLetters is a life whose dead-letter topic holds complete letters of its own slot,
// one for each row, all in partition 0; zero fields are filled in.
func withLetters(t *testing.T, letters ...setAside) (l *life, source string) {
	t.Helper()
	l = newLife(t)
	return l, l.setAside(t, letters...)
}

// setAside makes the dead-letter topic and writes the letters to it.
func (l *life) setAside(t *testing.T, letters ...setAside) (source string) {
	t.Helper()
	l.brokers.CreateTopic(t, "cdc-relay.dead-letters", 1)
	return l.setMoreAside(t, letters...)
}

// setMoreAside writes letters to the topic as it is.
func (l *life) setMoreAside(t *testing.T, letters ...setAside) (source string) {
	t.Helper()
	source = l.source(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(l.brokers.Addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	or := func(given, usual string) string {
		if given == "" {
			return usual
		}
		return given
	}
	for i, one := range letters {
		if strings.HasPrefix(one.source, "_") {
			one.source = source + one.source
		}
		topic := or(one.topic, "orders")
		letter := &kgo.Record{Topic: "cdc-relay.dead-letters", Key: []byte(one.key), Value: fmt.Appendf(nil, "%d", i)}
		for name, value := range map[string]string{
			deadletter.HeaderReason: or(one.reason, "record_too_large"), deadletter.HeaderTopic: topic, deadletter.HeaderTable: or(one.table, "public.outbox"),
			deadletter.HeaderLSN: fmt.Sprintf("0/%X", i+1), deadletter.HeaderSeq: "1", deadletter.HeaderSource: or(one.source, source),
			deadletter.HeaderGroup: deadletter.KeyGroup(topic, []byte(one.key)).String(), deadletter.HeaderTimeline: or(one.timeline, "1"),
		} {
			letter.Headers = append(letter.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		if err := client.ProduceSync(t.Context(), letter).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	return source
}

// source is that of the letters that the life's relay writes.
func (l *life) source(t *testing.T) string {
	t.Helper()
	system := harness.Query[string](t, l.db, "SELECT system_identifier::text FROM pg_control_system()")
	database := harness.Query[string](t, l.db, "SELECT oid::text FROM pg_database WHERE datname = current_database()")
	return deadletter.SourceID(system, database, l.slot())
}

func (l *life) slot() string {
	i := slices.IndexFunc(l.env, func(s string) bool { return strings.HasPrefix(s, "CDC_RELAY_POSTGRES_SLOT=") })
	_, slot, _ := strings.Cut(l.env[i], "=")
	return slot
}

// locked holds the lock on a slot's letters, as another redrive does.
func (l *life) locked(t *testing.T, source string) (release func()) {
	t.Helper()
	system, _, slot := deadletter.SplitSource(source)
	x, err := watch.OpenExclusion(t.Context(), postgres.Config{URL: l.db.URL}, system)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Take(t.Context(), slot); err != nil {
		t.Fatal(err)
	}
	return x.Close
}

func TestRedrive_IsTheOnlyOneOfItsSource(t *testing.T) {
	t.Parallel()
	const foreign = "7000000000000000001/16384/elsewhere"
	l, source := withLetters(t, setAside{key: "a"}, setAside{key: "b", source: foreign})
	release := l.locked(t, source)
	for _, args := range [][]string{{"--all"}, {"--all", "--source", source}, {"--all", "--source", "all"}, {"--all", "--discard"}} {
		all := append([]string{"deadletter", "redrive", "--yes"}, args...)
		got := invoke(t, l.env, all...)
		got.want(t, exitRefused, "", fmt.Sprintf("lock the dead letters of slot %q: another redrive is at them: pid ", l.slot()))
		got.want(t, exitRefused, "", "application_name cdc-relay redrive, user ")
		got.want(t, exitRefused, "", ", since 2")
		got.want(t, exitRefused, "", "wait until it has ended, then run this again; if it hangs")
		if got.stdout != "" {
			t.Errorf("%v printed %q", args, got.stdout)
		}
	}
	if n := len(l.brokers.Read(t, "cdc-relay.dead-letters")); n != 2 {
		t.Fatalf("%d records in the dead-letter topic: something was marked", n)
	}
	// Neither a plan nor letters of another database wait for it.
	invoke(t, l.env, "deadletter", "redrive", "--all").want(t, exitOK, "1 of 1 dead letter of the selected keys would be re-driven, 0 would be left; nothing was changed", "")
	invoke(t, l.env, "deadletter", "redrive", "--all", "--yes", "--source", foreign).want(t, exitOK, "1 of 1 dead letter of the selected keys re-driven, 0 left", "")
	invoke(t, l.env, "deadletter", "redrive", "--all", "--yes", "--discard", "--without-lock").want(t, exitOK, "1 of 1 dead letter of the selected keys discarded, 0 left", "")
	release()
	invoke(t, l.env, "deadletter", "redrive", "--all", "--yes").want(t, exitOK, "no dead letter that waits in topic cdc-relay.dead-letters matches; 0 in all wait there", "")
}

func TestRedrive_LocksWhatItSendsWhileItSends(t *testing.T) {
	t.Parallel()
	l, source := withLetters(t, setAside{key: "a"}, setAside{key: "b", source: "_2_1"})
	arrived, letGo := l.holdProduce(1)
	first := make(chan result, 1)
	go func() { first <- invoke(t, l.env, "deadletter", "redrive", "--all", "--yes") }()
	select {
	case <-arrived:
	case got := <-first:
		t.Fatalf("it ended: %+v", got)
	}
	for _, of := range []string{source, source + "_2_1"} {
		invoke(t, l.env, "deadletter", "redrive", "--all", "--yes", "--source", of).want(t, exitRefused, "", "another redrive is at them: pid ")
	}
	letGo()
	got := <-first
	got.want(t, exitOK, "2 of 2 dead letters of the selected keys re-driven, 0 left", "")
	for line := range strings.Lines(got.stderr) {
		if !strings.Contains(line, "not acknowledged for ") { // the brokers were held back
			t.Error(line)
		}
	}
	if n := len(l.brokers.Read(t, "orders")); n != 2 {
		t.Errorf("%d records", n)
	}
}

// A slot's name alone says that a letter is of another database; where it could be ours
// PostgreSQL has to be asked.
func TestRedrive_NeedsPostgresForTheLock(t *testing.T) {
	t.Parallel()
	l, source := withLetters(t, setAside{key: "a"}, setAside{key: "b", source: "7000000000000000001/16384/elsewhere"})
	env := append(slices.Clone(l.env), "CDC_RELAY_POSTGRES_URL=postgres://relay@127.0.0.1:1/shop?sslmode=disable&connect_timeout=2")
	env = slices.DeleteFunc(env, func(s string) bool { return s == "CDC_RELAY_POSTGRES_URL="+l.db.URL })
	invoke(t, env, "deadletter", "redrive", "--all", "--yes", "--source", "7000000000000000001/16384/elsewhere").want(t, exitOK, "1 of 1 dead letter of the selected keys re-driven, 0 left", "")
	invoke(t, env, "deadletter", "redrive", "--all", "--yes", "--source", source).want(t, exitFailed, "", "redrive takes a PostgreSQL lock so that only one runs for its source")
	invoke(t, env, "deadletter", "redrive", "--all", "--source", source).want(t, exitOK, "1 of 1 dead letter of the selected keys would be re-driven", "")
	invoke(t, env, "deadletter", "redrive", "--all", "--yes", "--source", source, "--without-lock").want(t, exitOK, "1 of 1 dead letter of the selected keys re-driven, 0 left", "")
}

// The letters of the second key are on their way, unanswered, when it ends.
func TestRedrive_SaysHowFarItCame(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end func(t *testing.T, l *life, cancel context.CancelFunc)
		why string
	}{
		"a signal": {func(_ *testing.T, _ *life, cancel context.CancelFunc) { cancel() }, "the redrive stopped: interrupted by a signal; "},
		"the lock is lost": {func(t *testing.T, l *life, _ context.CancelFunc) {
			l.db.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'cdc-relay redrive'")
		}, "the redrive stopped: keep the lock on the dead letters of slot "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, _ := withLetters(t, setAside{key: "a"}, setAside{key: "b"}, setAside{key: "b"}, setAside{key: "c"})
			arrived, release := l.holdProduce(3) // the record of a and its marker come before
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan result, 1)
			go func() { ended <- invokeWithin(ctx, t, l.env, "deadletter", "redrive", "--all", "--yes") }()
			select {
			case <-arrived:
			case got := <-ended:
				t.Fatalf("it ended: %+v", got)
			}
			tt.end(t, l, cancel)
			got := <-ended
			release()
			got.want(t, exitFailed, "1 of 4 dead letters of the selected keys re-driven, 3 left", tt.why)
			if by := name == "a signal"; strings.Contains(got.stdout, "interrupted by a signal") != by {
				t.Errorf("RESULT names a signal: %t\n%s", !by, got.stdout)
			}
			got.want(t, exitFailed, "", "; sent and marked: 1 of 4 dead letters; in hand was the one at partition 0, offset 1 (row 0/2/1 of table public.outbox), and of 2 dead letters of its key from there on nobody knows whether the brokers have them. "+
				"Run it again: marked letters are skipped, and of those 2 there may be two in topic orders then, in their order")
			invoke(t, l.env, "deadletter", "redrive", "--all", "--yes").want(t, exitOK, "3 of 3 dead letters of the selected keys re-driven, 0 left", "")
			// What was on its way had one of them, both, or none.
			if order := l.values(t, "orders", "b"); order != "1 2" && order != "1 1 2" && order != "1 2 1 2" {
				t.Errorf("key b: %s", order)
			}
			if a, c := l.values(t, "orders", "a"), l.values(t, "orders", "c"); a != "0" || c != "3" {
				t.Errorf("keys a and c: %s, %s", a, c)
			}
		})
	}
}

// holdProduce keeps the n-th produce request, and what comes after it on its connection.
func (l *life) holdProduce(n int) (arrived <-chan struct{}, release func()) {
	seen, held, free := 0, make(chan struct{}), make(chan struct{})
	cluster := l.brokers.Fake.Cluster()
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if seen++; seen == n {
			close(held)
			cluster.SleepControl(func() { <-free })
		}
		return nil, nil, false
	})
	return held, func() { close(free) }
}

// values are those of a key in a topic, in their order.
func (l *life) values(t *testing.T, topic, key string) string {
	t.Helper()
	var all []string
	for _, r := range l.brokers.Read(t, topic) {
		if string(r.Key) == key {
			all = append(all, string(r.Value))
		}
	}
	return strings.Join(all, " ")
}

func TestRedrive_InterruptedIsInTheReportToo(t *testing.T) {
	t.Parallel()
	l, _ := withLetters(t, setAside{key: "a"})
	arrived, release := l.holdProduce(1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	got := invokeWithin(ctx, t, l.env, "deadletter", "redrive", "--all", "--yes", "--json")
	release()
	var report struct {
		Done, Failed int
		Stopped      struct {
			Partition, Offset *int
			Unsure            int
		}
	}
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		t.Fatalf("%v: %s%s", err, got.stdout, got.stderr)
	}
	if s := report.Stopped; got.code != exitFailed || report.Done != 0 || report.Failed != 1 || s.Unsure != 1 || s.Partition == nil || *s.Partition != 0 || s.Offset == nil || *s.Offset != 0 {
		t.Errorf("exit %d:\n%s", got.code, got.stdout)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	invokeWithin(ctx, t, l.env, "deadletter", "redrive", "--all", "--yes").want(t, exitFailed, "", "")
}

// What another redrive did before the lock was free is not done again.
func TestRedrive_ReadsTheLettersUnderTheLock(t *testing.T) {
	t.Parallel()
	l, source := withLetters(t, setAside{key: "a"})
	a := &app{process: process{stdout: io.Discard, stderr: io.Discard, env: append([]string{"HOME=/nonexistent"}, l.env...)}}
	cfg, err := a.load()
	if err != nil {
		t.Fatal(err)
	}
	late := &letters{app: a, cfg: cfg, settings: cfg.Relay(), source: source}
	late.sources = restore.NewSources(late.settings.Replication)
	if err := late.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	invoke(t, l.env, "deadletter", "redrive", "--all", "--yes").want(t, exitOK, "1 of 1 dead letter of the selected keys re-driven, 0 left", "")
	o := redriveOptions{all: true, yes: true, discard: true}
	if n := len(late.tasks(o)); n != 1 {
		t.Fatalf("%d tasks before", n)
	}
	_, release, err := late.claim(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if n := len(late.tasks(o)); n != 0 {
		t.Errorf("%d tasks of what is done with", n)
	}
}

// The counts are over one set, which is named.
func TestRedrive_SumsUpWhatBecomesOfTheKeys(t *testing.T) {
	t.Parallel()
	l, _ := withLetters(t, setAside{key: "a"}, setAside{key: "a", reason: "parked"}, setAside{key: "a", reason: "parked"}, setAside{key: "a", reason: "parked"}, setAside{key: "b", reason: "route"})
	args := []string{"deadletter", "redrive", "--discard", "--reason", "record_too_large"}
	const rest = ": re-drive them, or discard them too with --whole-key"
	invoke(t, l.env, args...).want(t, exitOK, "\n1 of 4 dead letters of the selected keys would be discarded, 3 would be left"+rest+"; nothing was changed, repeat with --yes\n", "")
	invoke(t, l.env, append(args, "--yes")...).want(t, exitOK, "\n1 of 4 dead letters of the selected keys discarded, 3 left"+rest+"\n", "")
	invoke(t, l.env, "deadletter", "redrive", "--discard", "--reason", "parked", "--whole-key", "--yes").want(t, exitOK, "\n3 of 3 dead letters of the selected keys discarded, 0 left\n", "")
	invoke(t, l.env, "deadletter", "list").want(t, exitOK, "\n1 of 1 dead letter waiting in topic", "")
}

func TestDeadLetter_HintsAtWhatWouldMatch(t *testing.T) {
	t.Parallel()
	l, source := withLetters(t, setAside{key: "a"}, setAside{key: "a", reason: "parked"}, setAside{key: "b", reason: "route", topic: "bills"}, setAside{key: "c", source: "7000000000000000001/16384/elsewhere"}, setAside{key: "d", reason: "schema", source: "7000000000000000001/16384/elsewhere"})
	for _, tt := range []struct{ args, stdout, hint string }{
		{"redrive --reason record_to_large", "no dead letter that waits", "no dead letter that waits matches --reason record_to_large; did you mean --reason record_too_large?"},
		{"redrive --reason record_to_large --yes", "no dead letter that waits", "did you mean --reason record_too_large?"},
		{"redrive --reason record_to_large --json", `"letters": 0`, "did you mean --reason record_too_large?"},
		{"list --reason nothing", "0 of 0", "no dead letter that waits matches --reason nothing; there are: parked, record_too_large, route, schema"},
		{"show --reason nothing", "0 of 0", "no dead letter matches --reason nothing; there are: parked, record_too_large, route, schema"},
		{"list --topic order --table public.nope", "0 of 0", "matches --topic order; did you mean --topic orders?"},
		{"list --topic order --table public.nope", "0 of 0", "matches --table public.nope; there are: public.outbox"},
		{"list --reason parked --topic bills", "0 of 0", "each of --reason, --topic matches some, and none of them matches all"},
		{"list --lsn 1/1", "0 of 0", "matches --lsn 1/1; there are: 0/1, 0/2, 0/3, 0/4, 0/5"},
		{"list --key secret", "0 of 0", "no dead letter that waits matches --key; `cdc-relay deadletter list` shows the dead letters"},
		{"list --partition 7", "0 of 0", "matches --partition;"},
		{"list --since 2999-01-01T00:00:00Z", "0 of 0", "matches --since; the newest was set aside at 2"},
		{"redrive --all --source 1/5/" + l.slot(), "no dead letter that waits", "; there are: 7000000000000000001/16384/elsewhere, " + source},
		{"redrive --all --source " + source + "x", "no dead letter that waits", "did you mean --source " + source + "?"},
		{"redrive --reason shared", "no dead letter that waits", "there are: parked, record_too_large, route\n"},
		{"redrive --partition 0 --offset 3", "no dead letter that waits", "1 dead letter matches and is of another source; --source selects one of: 7000000000000000001/16384/elsewhere\n"},
		{"list --reason parked", "1 of 1", ""},
	} {
		got := invoke(t, l.env, append([]string{"deadletter"}, strings.Fields(tt.args)...)...)
		got.want(t, exitOK, tt.stdout, tt.hint)
		if tt.hint == "" && got.stderr != "" {
			t.Errorf("%s: %s", tt.args, got.stderr)
		}
	}
	invoke(t, l.env, "deadletter", "redrive", "--reason", "route", "--yes").want(t, exitOK, "1 of 1 dead letter", "")
	invoke(t, l.env, "deadletter", "redrive", "--reason", "route", "--yes").want(t, exitOK, "", "no dead letter that waits matches --reason route; 1 dead letter re-driven or discarded before would")
}
