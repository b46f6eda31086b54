package schemas

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/ending"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/encode"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/schemas"
	"github.com/rs/zerolog"
)

// fake is a registry with one schema for all subjects.
type fake struct {
	mu    sync.Mutex
	text  string
	id    uint32
	err   error
	asked int
	takes time.Duration // until it answers
}

func (f *fake) Schema(_ context.Context, subject string, _ int) (*encode.Schema, error) {
	time.Sleep(f.takes) //nolint:forbidigo // of a synctest
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.err != nil {
		return nil, f.err
	}
	return &encode.Schema{Subject: subject, Version: int(f.id), ID: f.id, Kind: encode.Avro, Text: f.text}, nil
}

func (f *fake) Known(context.Context, uint32) (encode.Kind, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return encode.Avro, f.id == 1, f.err
}

// set changes what the registry answers from now on.
func (f *fake) set(text string, id uint32, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text, f.id, f.err = text, id, err
}

const (
	v1 = `{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}`
	v2 = `{"type": "record", "name": "R", "fields": [{"name": "n", "type": "string"}]}`
)

// session notes what it was shown.
type session struct {
	blocked []string
	persons int
	end     error
}

func (s *session) Wait(ctx context.Context, signal <-chan struct{}) error {
	select {
	case <-signal:
		return s.end
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *session) Block(stop, ctx context.Context, reason string, cause error, needsPerson bool, d time.Duration) error {
	s.blocked = append(s.blocked, reason+": "+cause.Error())
	if needsPerson {
		s.persons++
	}
	over, cancel := context.WithTimeout(stop, d)
	defer cancel()
	if err := s.Wait(ctx, over.Done()); err != nil {
		return err
	}
	if stop.Err() != nil {
		return ending.ErrStopped
	}
	return nil
}

// learned waits until the router has what err needs.
func learned(t *testing.T, k *Keeper, err error) {
	t.Helper()
	if err := k.Await(t.Context(), t.Context(), new(session), need(t, err), func() error { return nil }, same); err != nil {
		t.Fatal(err)
	}
}

// A stop ends the wait for a registry that is away at once, before it is shown and after, once what
// lies before the row is durable.
func TestAwait_EndsWithAStopWhileTheRegistryIsAway(t *testing.T) {
	for _, after := range []time.Duration{3500 * time.Millisecond, 13500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{err: &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonRegistryUnreachable, Op: "ask"}}
			r, k, row := parts(t, f)
			_, err := route(r, row)
			ctx, stop := context.WithTimeout(t.Context(), after)
			defer stop()
			settled, began := 0, time.Now()
			err = k.Await(ctx, t.Context(), new(session), need(t, err), func() error { settled++; return nil }, same)
			if !errors.Is(err, ending.ErrStopped) || time.Since(began) != after || settled == 0 {
				t.Errorf("stop after %s: %v after %s, settled %d times", after, err, time.Since(began), settled)
			}
		})
	}
}

// parts are a router that needs schemas, and a row for it.
func parts(t *testing.T, f *fake) (*router.Router, *Keeper, *wal.Row) {
	t.Helper()
	r, err := router.New(router.Config{Registry: f, Mappings: []router.Mapping{{Table: "public.outbox", Value: "avro", Schema: schemas.Config{Options: encode.Options{Kind: encode.Avro}}}}})
	if err != nil {
		t.Fatal(err)
	}
	rel := &wal.Relation{OID: 1, Namespace: "public", Name: "outbox"}
	row := &wal.Row{Relation: rel, Txn: &wal.Txn{Commit: 8}}
	for _, v := range [][2]string{{"id", "7"}, {"aggregate_type", "order"}, {"aggregate_id", "k"}, {"event_type", "x"}, {"payload", `{"n": 1}`}} {
		rel.Columns = append(rel.Columns, wal.Column{Name: v[0], Type: 25})
		row.Values = append(row.Values, wal.Value{Kind: wal.Text, Data: []byte(v[1])})
	}
	return r, New(r.Registry(), Config{Refresh: time.Minute, RetryMin: time.Second, RetryMax: 2 * time.Second}, zerolog.Nop()), row
}

func route(r *router.Router, row *wal.Row) ([]byte, error) {
	var buf record.Buffer
	if err := r.Route(&buf, row); err != nil {
		return nil, err
	}
	return buf.Records[0].Value, nil
}

func need(t *testing.T, err error) *schemas.Need {
	t.Helper()
	n, ok := errors.AsType[*schemas.Need](err)
	if !ok {
		t.Fatalf("%v is no need", err)
	}
	return n
}

func same(err error) error { return err }

func TestAwait_HoldsARowBackUntilItsSchemaIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{text: v1, id: 1, err: &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonRegistryUnreachable, Op: "ask"}}
		r, k, row := parts(t, f)
		_, err := route(r, row)
		n := need(t, err)
		if n.Subject != "order-events-value" || n.Topic != "order-events" {
			t.Errorf("%+v", n)
		}
		s, settled, began := new(session), 0, time.Now()
		time.AfterFunc(15*time.Second, func() { f.set(v1, 1, nil) })
		if err := k.Await(t.Context(), t.Context(), s, n, func() error { settled++; return nil }, same); err != nil {
			t.Fatal(err)
		}
		if settled < 5 || len(s.blocked) == 0 || s.persons != 0 || !strings.HasPrefix(s.blocked[0], fault.ReasonRegistryUnreachable) {
			t.Errorf("settled %d times, shown %q, %d for a person", settled, s.blocked, s.persons)
		}
		if took := time.Since(began); took < 15*time.Second || took > 20*time.Second {
			t.Errorf("it took %s", took)
		}
		if value, err := route(r, row); err != nil || string(value) != "\x00\x00\x00\x00\x01\x02" {
			t.Errorf("%x, %v", value, err)
		}
	})
}

// An outage of a few seconds is not shown.
func TestAwait_ShowsNoShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{text: v1, id: 1, err: &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonRegistryUnreachable}}
		r, k, row := parts(t, f)
		_, err := route(r, row)
		time.AfterFunc(9*time.Second, func() { f.set(v1, 1, nil) })
		s := new(session)
		if err := k.Await(t.Context(), t.Context(), s, need(t, err), func() error { return nil }, same); err != nil || len(s.blocked) > 0 {
			t.Errorf("%v, shown %q", err, s.blocked)
		}
	})
}

// What a person has to do is shown at once, and so is a schema that cannot be used.
func TestAwait_ShowsWhatAPersonHasToDo(t *testing.T) {
	for _, f := range []*fake{
		{err: &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonUnknownSubject, Hint: "register it"}},
		{text: `"bytes"`, id: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, k, row := parts(t, f)
			_, err := route(r, row)
			s := new(session)
			time.AfterFunc(time.Second/2, func() { f.set(v1, 2, nil) })
			began := time.Now()
			if err := k.Await(t.Context(), t.Context(), s, need(t, err), func() error { return nil }, same); err != nil || s.persons != 1 || time.Since(began) > 3*time.Second {
				t.Errorf("%v after %s, shown %q, %d for a person", err, time.Since(began), s.blocked, s.persons)
			}
		})
	}
}

func TestAwait_EndsWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{err: &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonRegistryUnreachable}}
		r, k, row := parts(t, f)
		_, err := route(r, row)
		ended := errors.New("the slot is lost")
		if err := k.Await(t.Context(), t.Context(), &session{end: ended}, need(t, err), func() error { return nil }, same); !errors.Is(err, ended) {
			t.Errorf("%v", err)
		}
		if err := k.Await(t.Context(), t.Context(), new(session), need(t, err), func() error { return ended }, same); !errors.Is(err, ended) {
			t.Errorf("what lies before cannot be delivered: %v", err)
		}
	})
}

// A row that does not fit is rejected once the registry was asked after the row was read, however
// short before that it was asked too; while it stays, it is a reason for another look from time to time.
func TestAgain_LooksOnceMoreBeforeARowIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{text: v2, id: 1}
		r, k, row := parts(t, f)
		_, err := route(r, row)
		rejected := func(read time.Time) {
			t.Helper()
			if _, ok := errors.AsType[*record.RowError](k.Again(err, read)); !ok {
				t.Errorf("%v", k.Again(err, read))
			}
		}
		first := time.Now()
		learned(t, k, err)
		if _, err = route(r, row); !strings.Contains(err.Error(), "the schema wants string, the payload has a number") {
			t.Fatal(err)
		}
		rejected(first)                    // the look came after it
		time.Sleep(freshness)              //nolint:forbidigo // of a synctest
		learned(t, k, k.Again(err, first)) // it blocks, and somebody may have registered the version meanwhile
		rejected(first)

		time.Sleep(time.Millisecond) //nolint:forbidigo // of a synctest
		second := time.Now()
		learned(t, k, k.Again(err, second)) // the look came before it
		if since := time.Since(second); since < apart-time.Millisecond || since > apart {
			t.Errorf("asked again after %v", since)
		}
		rejected(second)
		f.set(v1, 2, nil)
		time.Sleep(time.Millisecond) //nolint:forbidigo // of a synctest
		learned(t, k, k.Again(err, time.Now()))
		if value, err := route(r, row); err != nil || string(value) != "\x00\x00\x00\x00\x02\x02" {
			t.Errorf("with the new version: %x, %v", value, err)
		}
	})
}

// A registry may take longer to answer than a look is fresh: the row is rejected all the same.
func TestAgain_ARowIsRejectedByAnAnswerThatTookLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{text: v2, id: 1, takes: freshness + time.Second}
		r, k, row := parts(t, f)
		read := time.Now()
		_, err := route(r, row)
		learned(t, k, err)
		_, err = route(r, row)
		if _, ok := errors.AsType[*record.RowError](k.Again(err, read)); !ok {
			t.Errorf("it waits for another answer, and for one after that: %v", k.Again(err, read))
		}
	})
}

// While the registry is away nobody knows whether it has a version that the row fits: the row waits.
func TestAgain_ARowThatDoesNotFitWaitsForARegistryThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{text: v2, id: 1}
		r, k, row := parts(t, f)
		_, err := route(r, row)
		s, settle := new(session), func() error { return nil }
		if err := k.Await(t.Context(), t.Context(), s, need(t, err), settle, same); err != nil {
			t.Fatal(err)
		}
		_, err = route(r, row)
		time.Sleep(time.Second) //nolint:forbidigo // of a synctest
		f.set("", 0, &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonRegistryUnreachable})
		time.AfterFunc(time.Minute, func() { f.set(v1, 2, nil) })
		if err := k.Await(t.Context(), t.Context(), s, need(t, k.Again(err, time.Now())), settle, same); err != nil || len(s.blocked) == 0 || s.persons > 0 {
			t.Errorf("%v, shown %q", err, s.blocked)
		}
		if value, err := route(r, row); err != nil || value[4] != 2 {
			t.Errorf("%x, %v", value, err)
		}
	})
}

// The look of Run may be answered before that of a row and handed over after it, or not be handed over
// yet: the version of the later question counts.
func TestLearn_AnEarlierLookDoesNotTakeThePlaceOfALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{text: v2, id: 1}
		r, k, row := parts(t, f)
		_, err := route(r, row)
		settle := func() error { return nil }
		if err := k.Await(t.Context(), t.Context(), new(session), need(t, err), settle, same); err != nil {
			t.Fatal(err)
		}
		_, err = route(r, row)
		time.Sleep(time.Second) //nolint:forbidigo // of a synctest
		read := time.Now()
		k.refresh(t.Context())
		f.set(v1, 2, nil)
		if _, ok := errors.AsType[*schemas.Need](k.Again(err, read)); !ok {
			t.Error("the row is rejected by a version that the router does not have")
		}
		time.Sleep(time.Second) //nolint:forbidigo // of a synctest
		if err := k.Await(t.Context(), t.Context(), new(session), need(t, k.Again(err, read)), settle, same); err != nil {
			t.Fatal(err)
		}
		k.Learn()
		if value, err := route(r, row); err != nil || value[4] != 2 {
			t.Errorf("%x, %v", value, err)
		}
	})
}

// Subjects are looked at from time to time; what is known stays in use where that fails.
func TestRun_LooksAtKnownSubjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{text: v1, id: 1}
		r, k, row := parts(t, f)
		_, err := route(r, row)
		learned(t, k, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go k.Run(ctx)
		f.set(v1, 1, &fault.Error{Kind: fault.KindRetry})
		time.Sleep(70 * time.Second) //nolint:forbidigo // of a synctest
		k.Learn()
		if value, err := route(r, row); err != nil || value[4] != 1 {
			t.Errorf("while the registry is away: %x, %v", value, err)
		}
		f.set(v1, 2, nil)
		time.Sleep(time.Minute) //nolint:forbidigo // of a synctest
		if value, _ := route(r, row); value[4] != 1 {
			t.Error("the router was changed beside its owner")
		}
		k.Learn()
		if value, err := route(r, row); err != nil || value[4] != 2 {
			t.Errorf("after a minute: %x, %v", value, err)
		}
	})
}

// A registry that is away for long is said once a minute, however often it is asked.
func TestRun_SaysOnceAMinuteThatALookFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{text: v1, id: 1}
		r, k, row := parts(t, f)
		var said bytes.Buffer
		k.log, k.cfg.Refresh = zerolog.New(&said), time.Second
		_, err := route(r, row)
		learned(t, k, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			k.Run(ctx)
		}()
		f.set(v1, 1, &fault.Error{Kind: fault.KindRetry})
		time.Sleep(150 * time.Second) //nolint:forbidigo // of a synctest
		cancel()
		<-ended
		if n := strings.Count(said.String(), "could not look up schemas again"); n != 3 {
			t.Errorf("said %d times in two and a half minutes:\n%s", n, &said)
		}
	})
}

// While no row comes nobody takes what Run finds: of each subject the last look waits, and no more.
func TestRun_HoldsOneLookForASubjectWhileNoRowComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{text: v1, id: 1}
		r, k, row := parts(t, f)
		_, err := route(r, row)
		learned(t, k, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go k.Run(ctx)
		time.Sleep(time.Hour) //nolint:forbidigo // of a synctest
		f.set(v1, 2, nil)
		time.Sleep(time.Hour) //nolint:forbidigo // of a synctest
		synctest.Wait()       // a look begins at this moment, too
		k.mu.Lock()
		held := len(k.fresh)
		k.mu.Unlock()
		if held != 1 || f.asked < 100 {
			t.Errorf("%d looks at one subject are held, of %d", held, f.asked)
		}
		k.Learn()
		if value, err := route(r, row); err != nil || value[4] != 2 {
			t.Errorf("%x, %v", value, err)
		}
	})
}

func TestKeeper_OfARelayWithoutSchemasDoesNothing(t *testing.T) {
	k := New(nil, Config{}, zerolog.Nop())
	k.Learn()
	k.Run(t.Context())
	if err := errors.New("x"); k.Again(err, time.Now()) != err { //nolint:errorlint // it is the same error
		t.Error("another error")
	}
}
