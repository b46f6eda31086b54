package deadletter

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// What fails is found among its neighbours, everything before it is done with, and
// what may heal is tried again.
func TestRedriver_SendsInOrderUpToWhatFails(t *testing.T) {
	for _, tt := range []struct {
		name   string
		class  sink.Class
		heals  int // after so many tries of the bad record; 0: never
		sent   string
		done   int
		failed bool
		tried  int
		waited time.Duration
	}{
		{"refused", sink.Rejected, 0, "1 2", 2, true, 2, 0},
		{"refused with its neighbours, and not alone", sink.Rejected, 1, "1 2 bad 4 5", 5, false, 2, 0},
		{"refused twice, then a neighbour's fault", sink.Retry, 2, "1 2 bad 4 5", 5, false, 3, 200 * time.Millisecond},
		{"never", sink.Retry, 0, "1 2", 2, true, 1 + tries, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out sinktest.Recorder
				tried := 0
				out.Decide(func(r *record.Record) sinktest.Verdict {
					if string(r.Value) != "bad" {
						return sinktest.Verdict{}
					}
					if tried++; tt.heals > 0 && tried > tt.heals {
						return sinktest.Verdict{}
					}
					return sinktest.Fail(tt.class, "reason", errors.New("no"))
				})
				var records []record.Record
				for _, value := range []string{"1", "2", "bad", "4", "5"} {
					records = append(records, record.Record{Topic: "orders", Value: []byte(value)})
				}
				began := time.Now()
				r := &Redriver{Sink: &out}
				n, err := r.send(t.Context(), records)
				if n != tt.done || (err != nil) != tt.failed {
					t.Fatalf("%d done, %v", n, err)
				}
				if waited := time.Since(began); tried != tt.tried || waited != tt.waited {
					t.Errorf("tried %d times and waited %s, want %d and %s", tried, waited, tt.tried, tt.waited)
				}
				var sent []string
				for _, d := range out.Delivered() {
					sent = append(sent, string(d.Value))
				}
				if got := strings.Join(sent, " "); got != tt.sent {
					t.Fatalf("sent %q, want %q", got, tt.sent)
				}
			})
		})
	}
}

// A record that is alone from the start is not sent again to find out.
func TestRedriver_SendsALoneRecordThatIsRefusedOnce(t *testing.T) {
	var out sinktest.Recorder
	tried := 0
	out.Decide(func(*record.Record) sinktest.Verdict {
		tried++
		return sinktest.Fail(sink.Rejected, "reason", errors.New("no"))
	})
	if n, err := (&Redriver{Sink: &out}).send(t.Context(), []record.Record{{Topic: "orders"}}); n != 0 || err == nil || tried != 1 {
		t.Errorf("%d done after %d tries, %v", n, tried, err)
	}
}

// A marker of all that waits names the highest row too, wherever its letter lies.
func TestRedriver_NamesTheHighestRowOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(Filter{})
		for _, commit := range []wal.LSN{0x10, 0x30, 0x20} {
			l.letter(commit, "a")
		}
		task := l.backlog.Whole()[0]
		var out sinktest.Recorder
		r := &Redriver{Sink: &out, Topic: topic}
		if outcome := r.perform(t.Context(), chunk{&task, task.Entries}, whole(task, func(*Letter) {})); outcome.Done != 3 {
			t.Fatalf("outcome %+v", outcome)
		}
		all := out.Delivered()
		last := all[len(all)-1]
		_, m, err := Parse(&topics.Message{Topic: topic, Key: last.Key, Headers: last.Headers, Offset: 3})
		if err != nil || m.Through != (wal.Place{Commit: 0x30, Ordinal: 1}) {
			t.Fatalf("marker %+v, %v", m, err)
		}
	})
}

// whole are letters as the topic has them.
func whole(task Task, edit func(*Letter)) map[Location]*Letter {
	found := map[Location]*Letter{}
	for _, e := range task.Entries {
		letter := e.Letter
		edit(&letter)
		found[e.Location()], e.sum = &letter, digestOf(&letter.Record)
	}
	return found
}

func deliveredRecord(d sinktest.Delivered) record.Record {
	return record.Record{Topic: d.Topic, Key: d.Key, Value: d.Value, Headers: d.Headers, Partition: d.Partition}
}

func TestRedriver_MarksWhatItDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(Filter{})
		l.cause.Timeline = 1
		l.letter(0x10, "a")
		l.letter(0x20, "a")
		l.letter(0x20, "a") // there twice
		l.letter(0x30, "a")
		task := l.backlog.Whole()[0]
		letters := whole(task, func(letter *Letter) {
			letter.Record.Value = []byte("v" + letter.Commit.String())
			if letter.Commit == 0x30 {
				letter.Missing = []string{router.PartValue}
			}
		})
		var out sinktest.Recorder
		r := &Redriver{Sink: &out, Topic: topic, Own: func(string) bool { return true }, Restore: oneRow(func(*Letter) (Restored, error) {
			return Restored{}, errors.New("the row is gone")
		})}
		outcome := r.perform(t.Context(), chunk{&task, task.Entries}, letters)
		if outcome.Done != 3 || outcome.Records != 2 || outcome.Err == nil || !strings.Contains(outcome.Err.Error(), "gone") {
			t.Fatalf("outcome %+v", outcome)
		}
		all := out.Delivered()
		if len(all) != 3 || all[0].Topic != "orders" || string(all[1].Value) != "v0/20" || all[2].Topic != topic || all[2].Partition != 0 {
			t.Fatalf("delivered %+v", all)
		}
		_, m, err := Parse(&topics.Message{Topic: topic, Key: all[2].Key, Headers: all[2].Headers, Offset: 4})
		if err != nil || m.Offsets.String() != "0-2" || m.Through != (wal.Place{}) || m.Outcome != Sent {
			t.Fatalf("marker %+v, %v", m, err)
		}
	})
}

// A delete and its tombstone are two records of one row. The delete is refused, and the
// tombstone follows it.
func TestRedriver_SendsEachRecordOfARow(t *testing.T) {
	for name, number := range map[string]func(c *Cause, r *record.Record){
		"numbered":                 func(c *Cause, r *record.Record) { c.Timeline, r.Nth = 1, 1 },
		"as an earlier build does": func(*Cause, *record.Record) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLog(Filter{})
				deleted, tombstone := newRecord(0x10, 1, "a", `{"op":"d"}`), newRecord(0x10, 1, "a", "")
				tombstone.Value = nil
				follow := cause
				follow.Reason = CauseParked
				number(&follow, tombstone)
				first := cause
				first.Timeline = follow.Timeline
				l.put(Wrap(deleted, topic, first), 0)
				l.put(Wrap(tombstone, topic, follow), 0)
				task := l.backlog.Whole()[0]
				letters := whole(task, func(letter *Letter) {
					if letter.Offset == 0 {
						letter.Record.Value = deleted.Value
					}
				})
				var out sinktest.Recorder
				r := &Redriver{Sink: &out, Topic: topic}
				outcome := r.perform(t.Context(), chunk{&task, task.Entries}, letters)
				if outcome.Records != 2 || outcome.Done != 2 || outcome.Err != nil {
					t.Fatalf("outcome %+v", outcome)
				}
				sent := out.Delivered()
				if len(sent) != 3 || string(sent[0].Value) != `{"op":"d"}` || sent[1].Value != nil || sent[1].Topic != "orders" {
					t.Fatalf("sent %+v", sent)
				}
			})
		})
	}
}

// Bytes that change while they are sent are not what was restored: nothing is marked.
func TestRedriver_MarksNothingThatChangedInMemory(t *testing.T) {
	for _, when := range []string{"before", "while it is sent"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLog(Filter{})
				for commit := range 3 {
					l.letter(wal.LSN(0x10+commit), "a")
				}
				task := l.backlog.Whole()[0]
				letters := whole(task, func(letter *Letter) { letter.Missing = []string{router.PartValue} })
				shared := []byte("0000")
				var out sinktest.Recorder
				r := &Redriver{Sink: &out, Topic: topic, Own: func(string) bool { return true }, Restore: oneRow(func(letter *Letter) (Restored, error) {
					rec := letter.Record
					rec.Value = shared
					if when == "before" {
						copy(shared, letter.Commit.String())
					}
					return Restored{Record: &rec}, nil
				})}
				if when != "before" {
					out.Decide(func(*record.Record) sinktest.Verdict { copy(shared, "1111"); return sinktest.Verdict{} })
				}
				outcome := r.perform(t.Context(), chunk{&task, task.Entries}, letters)
				if outcome.Done != 0 || outcome.Err == nil || !strings.Contains(outcome.Err.Error(), "changed in memory") {
					t.Fatalf("outcome %+v", outcome)
				}
				for _, d := range out.Delivered() {
					if d.Topic == topic {
						t.Error("a marker was written")
					}
				}
			})
		})
	}
}

func TestRedriver_CompletesNoLetterOfAnotherSource(t *testing.T) {
	l := newLog(Filter{})
	l.letter(0x10, "a")
	task := l.backlog.Whole()[0]
	letters := whole(task, func(letter *Letter) { letter.Missing = []string{router.PartValue} })
	r := &Redriver{Sink: &sinktest.Recorder{}, Topic: topic, Own: func(source string) bool { return source == "7000/5/other" }, Restore: oneRow(func(*Letter) (Restored, error) {
		t.Fatal("it was looked for in our table")
		return Restored{}, nil
	})}
	outcome := r.perform(t.Context(), chunk{&task, task.Entries}, letters)
	if outcome.Done != 0 || outcome.Err == nil || !strings.Contains(outcome.Err.Error(), "7000/5/orders") {
		t.Fatalf("outcome %+v", outcome)
	}
}

// A failover that lost the tail of the WAL: rows at 900 exist in Kafka alone, and the new
// timeline begins at 800 and writes other rows to the same positions.
func TestBacklog_TellsTimelinesApart(t *testing.T) {
	group := KeyGroup("orders", []byte("a"))
	follow := func(l *logOf, commit wal.LSN) {
		t.Helper()
		if !l.parked.Follow(group, ID{Timeline: 2, Place: wal.Place{Commit: commit, Ordinal: 1}}) {
			t.Fatalf("%s does not follow", commit)
		}
		l.letter(commit, "a")
	}
	t.Run("a marker covers what the redrive read", func(t *testing.T) {
		l := newLog(Filter{})
		l.cause.Timeline = 1
		l.letter(0x900, "a")
		l.cause.Timeline = 2
		follow(l, 0x810)
		if got := l.plan(); got != "a: 900 810" {
			t.Fatalf("plan %q", got)
		}
		task := l.backlog.Whole()[0]
		follow(l, 0x820) // while these are sent
		var out sinktest.Recorder
		r := &Redriver{Sink: &out, Topic: topic}
		if err := r.writeMarkers(t.Context(), chunk{&task, task.Entries}, 2); err != nil {
			t.Fatal(err)
		}
		l.put(deliveredRecord(out.Delivered()[0]), 0)
		if got := l.plan(); got != "a: 820" || l.parked.Len() != 1 {
			t.Errorf("plan %q, %d parked: the row of 820 was not sent", got, l.parked.Len())
		}
	})
	t.Run("one position on two timelines of one number", func(t *testing.T) { // two standbys were promoted, or a disk was put back
		synctest.Test(t, func(t *testing.T) {
			l := newLog(Filter{Offset: new(int64)})
			l.cause.Timeline = 2
			for i, seconds := range []int64{1, 2, 0, 2, 0} { // zero: an earlier build wrote it, which may be a copy of either
				rec := newRecord(0x900, 1, "a", strconv.Itoa(i))
				rec.Row.Txn.Time = time.Unix(seconds, 0)
				letter := Wrap(rec, topic, l.cause)
				if seconds == 0 {
					letter.Headers = slices.DeleteFunc(letter.Headers, func(h record.Header) bool { return h.Key == HeaderCommitTime })
				}
				l.put(letter, 0)
			}
			if got := l.backlog.Selected()[0]; len(got.Entries) != 3 || got.Left != 2 {
				t.Errorf("with the first one %d are selected, %d are left", len(got.Entries), got.Left)
			}
			task := l.backlog.Whole()[0]
			var out sinktest.Recorder
			r := &Redriver{Sink: &out, Topic: topic}
			if outcome := r.perform(t.Context(), chunk{&task, task.Entries}, whole(task, func(*Letter) {})); outcome.Records != 2 {
				t.Errorf("outcome %+v", outcome)
			}
		})
	})
	t.Run("one position, two rows", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLog(Filter{})
			for timeline := range 2 {
				l.cause.Timeline = int32(timeline + 1)
				l.letter(0x900, "a")
			}
			task := l.backlog.Whole()[0]
			var out sinktest.Recorder
			r := &Redriver{Sink: &out, Topic: topic}
			if outcome := r.perform(t.Context(), chunk{&task, task.Entries}, whole(task, func(*Letter) {})); outcome.Records != 2 {
				t.Errorf("outcome %+v", outcome)
			}
		})
	})
}

// A letter that is discarded takes no other of its key along.
func TestBacklog_SelectsLettersOrWholeKeys(t *testing.T) {
	l := newLog(Filter{Commit: 0x10})
	l.letter(0x10, "a")
	l.letter(0x20, "a")
	l.letter(0x30, "b")
	for _, tt := range []struct {
		tasks   []Task
		entries int
		left    int
	}{{l.backlog.Selected(), 1, 1}, {l.backlog.Whole(), 2, 0}} {
		if len(tt.tasks) != 1 || len(tt.tasks[0].Entries) != tt.entries || tt.tasks[0].Left != tt.left {
			t.Errorf("%+v, want %d entries and %d left", tt.tasks, tt.entries, tt.left)
		}
	}
	var out sinktest.Recorder
	r := &Redriver{Sink: &out, Topic: topic, Discard: true}
	task := l.backlog.Selected()[0]
	if err := r.writeMarkers(t.Context(), chunk{&task, task.Entries}, 1); err != nil {
		t.Fatal(err)
	}
	l.put(deliveredRecord(out.Delivered()[0]), 0)
	if got := l.parked.Len(); got != 2 {
		t.Errorf("%d keys are parked, want 2: a letter of the key waits", got)
	}
}

// A letter whose topic is not known yet may go to that of any other letter of its key: the older
// one is sent first, whichever is selected.
func TestBacklog_KeepsLettersOfAKeyTogetherWhereATopicIsNotKnownYet(t *testing.T) {
	for name, topics := range map[string][2]string{"neither known": {"", ""}, "older unknown": {"", "orders"}, "newer unknown": {"orders", ""}} {
		t.Run(name, func(t *testing.T) { keepsLettersTogether(t, topics) })
	}
}

// Letters of a key in two topics that are known are two tasks: neither can belong to the other.
func TestBacklog_KeepsLettersOfAKeyApartWhereTheirTopicsAreKnown(t *testing.T) {
	l := newLog(Filter{Commit: 0x20})
	for i, of := range []string{"carts", "orders"} {
		rec := newRecord(wal.LSN(0x10*(i+1)), 1, "a", "v")
		rec.Topic = of
		l.put(Wrap(rec, topic, cause), 0)
	}
	if tasks := l.backlog.Whole(); len(tasks) != 1 || len(tasks[0].Entries) != 1 || tasks[0].Entries[0].Record.Topic != "orders" {
		t.Errorf("%+v, want the selected letter alone", tasks)
	}
}

func keepsLettersTogether(t *testing.T, topics [2]string) {
	l := newLog(Filter{Commit: 0x20})
	for i, one := range []struct {
		commit wal.LSN
		key    string
	}{{0x10, "a"}, {0x20, "a"}, {0x30, "b"}} {
		rec := newRecord(one.commit, 1, one.key, "v")
		c := cause
		if rec.Topic = topics[i%2]; rec.Topic == "" {
			c.Reason, c.Missing = "route", []string{router.PartTopic}
		}
		l.put(Wrap(rec, topic, c), 0)
	}
	var order []wal.LSN
	whole := l.backlog.Whole()
	for _, task := range whole {
		for _, e := range task.Entries {
			order = append(order, e.Commit)
		}
	}
	if !slices.Equal(order, []wal.LSN{0x10, 0x20}) {
		t.Errorf("%v are sent, want the two rows of the key, the older one first", order)
	}
	if tasks := l.backlog.Selected(); len(tasks) != 1 || len(tasks[0].Entries) != 1 || tasks[0].Left != 1 {
		t.Errorf("%+v, want one entry and one left", tasks)
	}
	parked := map[string]int{topics[0] + "a": 1, topics[1] + "a": 1, topics[0] + "b": 1}
	delete(parked, "a")
	delete(parked, "b")
	if got := l.parked.Len(); got != len(parked) {
		t.Errorf("%d keys are parked, want %d: a row without a topic holds back no other", got, len(parked))
	}
}

// The letters of a key that are sent together get their markers in their own groups.
func TestRedriver_MarksEachGroupOfATask(t *testing.T) {
	l := newLog(Filter{})
	for i, of := range []string{"", "orders", ""} {
		rec := newRecord(wal.LSN(0x10*(i+1)), 1, "a", "v")
		rec.Topic = of
		l.put(Wrap(rec, topic, cause), 0)
	}
	tasks := l.backlog.Whole()
	if len(tasks) != 1 || len(tasks[0].Entries) != 3 {
		t.Fatalf("%+v, want one task of three letters", tasks)
	}
	var out sinktest.Recorder
	if err := (&Redriver{Topic: topic, Sink: &out, Discard: true}).Run(t.Context(), tasks, func(out Outcome) {
		if out.Err != nil || out.Done != 3 {
			t.Errorf("%d are done: %v", out.Done, out.Err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	for _, e := range l.backlog.Entries {
		e.Done = "" // a reader has the markers alone
	}
	for _, marker := range out.Delivered() {
		l.put(deliveredRecord(marker), 0)
	}
	if left := l.backlog.Whole(); len(left) != 0 || l.parked.Len() != 0 {
		t.Errorf("%+v wait still, %d keys are parked", left, l.parked.Len())
	}
}

// What is sent is what was planned, and of a letter that is not complete the row that it
// came from.
func TestRedriver_SendsNoOtherRecordThanTheLetters(t *testing.T) {
	other := newRecord(0x10, 1, "b", "v")
	for _, tt := range []struct {
		name  string
		edit  func(*Letter) // of what the second reading finds
		part  bool          // is missing
		found *record.Record
		want  string
	}{
		{"as it was", func(*Letter) {}, false, nil, ""},
		{"another row", func(l *Letter) { l.Commit++ }, false, nil, "another letter"},
		{"other bytes", func(l *Letter) { l.Record.Value = []byte("x") }, false, nil, "another letter"},
		{"of another source", func(l *Letter) { l.Source = "8000/5/orders" }, false, nil, "another letter"},
		{"restored", func(*Letter) {}, true, newRecord(0x10, 1, "a", "v"), ""},
		{"restored of another key", func(*Letter) {}, true, other, "another row"},
		{"its value restored", func(l *Letter) { l.ValueBytes = 1 }, true, newRecord(0x10, 1, "a", "v"), ""},
		{"its value restored of another key", func(l *Letter) { l.ValueBytes = 1 }, true, other, "another row"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLog(Filter{})
			l.cause.Timeline = 1
			if tt.part {
				l.cause.Missing = []string{router.PartValue}
			}
			l.letter(0x10, "a")
			task := l.backlog.Whole()[0]
			letters := whole(task, func(*Letter) {})
			tt.edit(letters[Location{}])
			var out sinktest.Recorder
			r := &Redriver{Sink: &out, Topic: topic, Own: func(string) bool { return true }, Restore: rowsOf(Restored{Record: tt.found})}
			outcome := r.perform(t.Context(), chunk{&task, task.Entries}, letters)
			if tt.want == "" && outcome.Done == 1 {
				return
			}
			if tt.want == "" || outcome.Done != 0 || outcome.Err == nil || !strings.Contains(outcome.Err.Error(), tt.want) || len(out.Delivered()) > 0 {
				t.Errorf("outcome %+v, delivered %v", outcome, out.Delivered())
			}
		})
	}
}

// What a letter has is sent as it is, because its row may be another one by now. Where the value is missing
// beside other parts, all but the place of its row comes from the record that the row makes now.
func TestLetter_CompletedKeepsWhatOnlyItKnows(t *testing.T) {
	header := func(name string) record.Header { return record.Header{Key: name, Value: []byte("1")} }
	kept := record.Record{Topic: "was", Key: []byte("k"), Headers: []record.Header{header("old"), header(record.HeaderLSN)}}
	whole := kept
	whole.Value = []byte("w")
	made := record.Record{Topic: "is", Key: []byte("k"), Value: []byte("v"), Headers: []record.Header{header("new")}}
	for want, l := range map[string]*Letter{
		"was v old cdc-relay-lsn": {Missing: []string{router.PartValue}, ValueBytes: 1, Record: kept},
		"is v new cdc-relay-lsn":  {Missing: []string{router.PartValue, router.PartHeaders}, ValueBytes: 1, Record: kept},
		"is w old cdc-relay-lsn":  {Missing: []string{router.PartTopic}, Record: whole},
		"is w new cdc-relay-lsn":  {Missing: []string{router.PartTopic, router.PartHeaders}, Record: whole},
	} {
		rec := l.completed(&made)
		got := rec.Topic + " " + string(rec.Value)
		for _, h := range rec.Headers {
			got += " " + h.Key
		}
		if got != want {
			t.Errorf("%v missing: %q, want %q", l.Missing, got, want)
		}
	}
}

// The row of a letter may be lost, and another one have its event id. The event of a complete letter
// did not happen either. What another database lost is not known.
func TestRedriver_SendsNothingThatAFailoverLost(t *testing.T) {
	for name, missing := range map[string][]string{"complete": nil, "without its value": {router.PartValue}} {
		for _, plan := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, plan %t", name, plan), func(t *testing.T) {
				l := newLog(Filter{})
				l.cause.Timeline, l.cause.Missing = 1, missing
				l.letter(0x900, "a")
				task := l.backlog.Whole()[0]
				var out sinktest.Recorder
				r := &Redriver{
					Sink: &out, Topic: topic, DryRun: plan, Own: func(string) bool { return true }, Lost: func(e *Entry) bool { return e.Timeline == 1 && e.Commit >= 0x800 },
					Restore: rowsOf(Restored{Record: newRecord(0x810, 1, "a", "v")}),
				}
				letters := whole(task, func(*Letter) {})
				outcome := r.perform(t.Context(), chunk{&task, task.Entries}, letters)
				if outcome.Done != 0 || outcome.Err == nil || !strings.Contains(outcome.Err.Error(), "failover") || len(out.Delivered()) > 0 {
					t.Errorf("outcome %+v", outcome)
				}
				r.Own = func(string) bool { return false }
				if outcome = r.perform(t.Context(), chunk{&task, task.Entries}, letters); (outcome.Err == nil) != (missing == nil) {
					t.Errorf("of another database: %+v", outcome)
				}
			})
		}
	}
}

// One of several letters of a record may have lost its value.
func TestRedriver_SendsTheWholeOneOfSeveralLetters(t *testing.T) {
	l := newLog(Filter{})
	l.cause.Timeline = 1
	stripped := Wrap(newRecord(0x10, 1, "a", "v"), topic, l.cause)
	Strip(&stripped)
	l.put(stripped, 0)
	l.letter(0x10, "a")
	task := l.backlog.Whole()[0]
	letters := whole(task, func(letter *Letter) { letter.Record.Value = []byte("v") })
	var out sinktest.Recorder
	r := &Redriver{Sink: &out, Topic: topic, Own: func(string) bool { return true }}
	outcome := r.perform(t.Context(), chunk{&task, task.Entries}, letters)
	if all := out.Delivered(); outcome.Done != 2 || outcome.Records != 1 || len(all) != 2 || string(all[0].Value) != "v" {
		t.Errorf("outcome %+v, delivered %v", outcome, all)
	}
}
