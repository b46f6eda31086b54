package deadletter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// running is a Run of one letter of key a, three of b and one of c, with a sink that
// acknowledges what it is told to.
type running struct {
	sink     sinktest.Recorder
	stop     context.CancelCauseFunc
	outcomes []Outcome
	err      error
}

func newRunning(t *testing.T) *running {
	log := newLog(Filter{})
	log.cause.Timeline = 1
	for i, key := range []string{"a", "b", "b", "b", "c"} {
		log.letter(wal.LSN(0x10*(i+1)), key)
	}
	tasks := log.backlog.Whole()
	all := map[Location]*Letter{}
	for _, task := range tasks {
		for place, letter := range whole(task, func(l *Letter) { l.Record.Value = []byte(l.Commit.String()) }) {
			all[place] = letter
		}
	}
	run := &running{}
	run.sink.Hold()
	ctx, stop := context.WithCancelCause(t.Context())
	run.stop = stop
	r := &Redriver{Sink: &run.sink, Topic: topic, ReadLetters: func(context.Context, []*Entry) (map[Location]*Letter, error) { return all, nil }}
	go func() {
		run.err = r.Run(ctx, tasks, func(out Outcome) { run.outcomes = append(run.outcomes, out) })
	}()
	synctest.Wait()
	run.ack(2) // the record of a and its marker; those of b are on their way
	return run
}

// ack acknowledges what is sent now, one after another.
func (r *running) ack(n int) {
	for range n {
		r.sink.Ack(1)
		synctest.Wait()
	}
}

// delivered are the values in the order of their arrival, and the markers' outcomes.
func (r *running) delivered() string {
	var all []string
	for _, d := range r.sink.Delivered() {
		text := string(d.Value)
		if d.Topic == topic {
			text = "marker"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

// pass is the bubble's clock.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// told is what Run says of its end.
func (r *running) told(t *testing.T) string {
	t.Helper()
	synctest.Wait()
	stopped, ok := errors.AsType[*Stopped](r.err)
	if !ok {
		t.Fatalf("it ended with %v, and not because it was stopped", r.err)
	}
	at := "no letter"
	if stopped.Entry != nil {
		at = stopped.Entry.Commit.String()
	}
	return fmt.Sprintf("%v at %s, %d unsure, %d pieces", stopped.Err, at, stopped.Unsure, len(r.outcomes))
}

func TestRedriver_StopsInTheMiddleAndTellsWhere(t *testing.T) {
	lost := errors.New("the lock is lost")
	for _, tt := range []struct {
		name       string
		act        func(r *running)
		told, sent string
	}{
		{"nothing of it was written", func(r *running) {
			r.stop(lost)
		}, "the lock is lost at 0/20, 3 unsure, 2 pieces", "0/10 marker"},
		{"a part of it is acknowledged", func(r *running) {
			r.sink.Ack(1)
			r.stop(lost)
			synctest.Wait()
			r.ack(1)
		}, "the lock is lost at 0/30, 2 unsure, 2 pieces", "0/10 marker 0/20 marker"},
		{"it was written, and the answer comes", func(r *running) {
			r.sink.Written(true)
			r.stop(lost)
			synctest.Wait()
			pass(stopGrace / 2)
			r.ack(4)
		}, "the lock is lost at no letter, 0 unsure, 2 pieces", "0/10 marker 0/20 0/30 0/40 marker"},
		{"it was written, and no answer comes", func(r *running) {
			r.sink.Written(true)
			r.stop(lost)
			pass(stopGrace + time.Second)
		}, "the lock is lost at 0/20, 3 unsure, 2 pieces", "0/10 marker"},
		{"it comes before the marker", func(r *running) {
			r.ack(3)
			r.stop(lost)
			r.sink.Written(true)
			synctest.Wait()
			pass(stopGrace / 2)
			r.ack(1)
		}, "the lock is lost at no letter, 0 unsure, 2 pieces", "0/10 marker 0/20 0/30 0/40 marker"},
		{"the brokers are unreachable", func(r *running) {
			r.sink.SetReachable(errors.New("dial: refused"))
			pass(mostAway + time.Second/2)
		}, "dial: refused at 0/20, 3 unsure, 2 pieces", "0/10 marker"},
		{"the brokers are unreachable for a moment", func(r *running) {
			for range 3 {
				r.sink.SetReachable(errors.New("dial: refused"))
				pass(mostAway / 2)
				r.sink.SetReachable(nil)
				pass(2 * time.Second)
			}
			r.ack(4)
			r.stop(lost)
		}, "the lock is lost at 0/50, 1 unsure, 3 pieces", "0/10 marker 0/20 0/30 0/40 marker"},
		{"the brokers refuse us", func(r *running) {
			r.sink.SetReachable(&sink.Error{Class: sink.Blocked, Reason: "sasl", Err: errors.New("who are you")})
			pass(2 * time.Second)
		}, "who are you at 0/20, 3 unsure, 2 pieces", "0/10 marker"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRunning(t)
				tt.act(r)
				if told := r.told(t); !strings.Contains(told, tt.told) {
					t.Errorf("told %q, want %q", told, tt.told)
				}
				if got := r.delivered(); got != tt.sent {
					t.Errorf("delivered %q, want %q", got, tt.sent)
				}
				_ = r.sink.Close(t.Context())
			})
		})
	}
}

// What was over before anything was handed over leaves no doubt.
func TestRedriver_SendsNothingOnceItIsToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(Filter{})
		l.cause.Timeline, l.cause.Missing = 1, []string{"value"}
		l.letter(0x10, "a")
		task := l.backlog.Whole()[0]
		ctx, stop := context.WithCancelCause(t.Context())
		var out sinktest.Recorder
		r := &Redriver{Sink: &out, Topic: topic, Own: func(string) bool { return true }, Restore: restoring(newRecord(0x10, 1, "a", "v"), stop)}
		letters := whole(task, func(*Letter) {})
		r.ReadLetters = func(context.Context, []*Entry) (map[Location]*Letter, error) { return letters, nil }
		stopped, ok := errors.AsType[*Stopped](r.Run(ctx, []Task{task}, func(Outcome) {}))
		if !ok || stopped.Err.Error() != "enough" || stopped.Entry != task.Entries[0] || stopped.Unsure != 0 || out.Counts().Sends != 0 {
			t.Errorf("stopped %+v, %d sends", stopped, out.Counts().Sends)
		}
	})
}

// restoring gives the record, and has the redrive stopped meanwhile.
func restoring(rec *record.Record, stop context.CancelCauseFunc) func(context.Context, *Letter) iter.Seq2[Restored, error] {
	return oneRow(func(*Letter) (Restored, error) {
		stop(errors.New("enough"))
		return Restored{Record: rec}, nil
	})
}

// A letter that somebody else was done with meanwhile is no outcome.
func TestRedriver_PassesOverWhatIsDoneWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(Filter{})
		l.letter(0x10, "a")
		task := l.backlog.Whole()[0]
		var out sinktest.Recorder
		r := &Redriver{Sink: &out, Topic: topic, ReadLetters: func(_ context.Context, entries []*Entry) (map[Location]*Letter, error) {
			entries[0].Done = Sent
			return nil, nil
		}}
		err := r.Run(t.Context(), []Task{task}, func(o Outcome) { t.Errorf("outcome %+v", o) })
		if err != nil || out.Counts().Sends != 0 {
			t.Errorf("%v, %d sends", err, out.Counts().Sends)
		}
	})
}

// loading is a sink whose Send waits, as Kafka's does while no broker says where the
// partitions of a topic are.
type loading struct{ sinktest.Recorder }

func (s *loading) Send(ctx context.Context, _ []record.Record, done func(error)) {
	<-ctx.Done()
	done(&sink.FailedError{Failures: []sink.Failure{{Class: sink.Retry, Reason: "interrupted", Err: context.Cause(ctx)}}})
}

// The brokers went before a topic was sent to for the first time, so Send itself waits.
func TestRedriver_StopsWhereSendWaitsForBrokersThatAreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(Filter{})
		l.letter(0x10, "a")
		task := l.backlog.Whole()[0]
		letters := whole(task, func(*Letter) {})
		var out loading
		out.SetReachable(errors.New("dial: refused"))
		r := &Redriver{Sink: &out, Topic: topic, ReadLetters: func(context.Context, []*Entry) (map[Location]*Letter, error) { return letters, nil }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		stopped, ok := errors.AsType[*Stopped](r.Run(ctx, []Task{task}, func(Outcome) {}))
		if !ok || stopped.Err.Error() != "dial: refused" || stopped.Entry != task.Entries[0] {
			t.Errorf("stopped %+v", stopped)
		}
		if took := time.Since(began); took > mostAway+stopGrace {
			t.Errorf("it took %s", took)
		}
	})
}

// A redrive is halted between two keys: the letters of a key that was begun are all sent, however
// many pieces they are.
func TestRedriver_IsHaltedBetweenTwoKeys(t *testing.T) {
	for halt, want := range []int{0, 3, 4} { // how many keys are let through: the records that are sent
		log := newLog(Filter{})
		for i, key := range []string{"a", "a", "a", "b", "c"} {
			log.letter(wal.LSN(0x10*(i+1)), key)
		}
		tasks := log.backlog.Whole()
		var out sinktest.Recorder
		asked, done := 0, 0
		r := &Redriver{Sink: &out, Topic: topic, most: 1,
			Halted: func() bool { asked++; return asked > halt },
			ReadLetters: func(_ context.Context, entries []*Entry) (map[Location]*Letter, error) {
				return whole(Task{Entries: entries}, func(l *Letter) { l.Record.Value = []byte("v") }), nil
			},
		}
		err := r.Run(t.Context(), tasks, func(o Outcome) { done += o.Done })
		if stopped, ok := errors.AsType[*Stopped](err); !ok || !errors.Is(stopped.Err, ErrHalted) || done != want {
			t.Errorf("halted after %d keys: %d letters are done, want %d: %v", halt, done, want, err)
		}
	}
}
