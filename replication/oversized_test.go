package replication

import (
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/jackc/pgx/v5/pgproto3"
)

func outboxRelation() pgoutputtest.Message {
	return pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", pgoutputtest.OutboxColumns...)
}

func logical(prefix, body string) pgoutputtest.Message {
	return append(pgoutputtest.Message{'M'}.U8(1).LSN(0x200).Str(prefix).U32(uint32(len(body))), body...)
}

// announced is the header of a message of n bytes and the first bytes of it.
func announced(n int, m pgoutputtest.Message) []byte {
	body := pgoutputtest.InWAL(0x200, pgoutputtest.Micros, m)
	head := []byte{'d', 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[1:], uint32(4+walHeader+n))
	return append(head, body...)
}

func TestOversizedRowIsRefusedByItsLength(t *testing.T) {
	const declared = 540 << 20
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, Options{MaxRowBytes: 1 << 20})
		f.wal(pgoutputtest.Begin(0x300, 7), outboxRelation(), pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "payload"))
		go f.send(append(announced(declared, pgoutputtest.Insert(pgoutputtest.OutboxOID, "2", "payload")), make([]byte, 8<<10)...))
		b := <-f.out
		if len(b.Rows) != 1 || b.Through >= 0x300 {
			t.Errorf("%d rows before the large one, through %s", len(b.Rows), b.Through)
		}
		b.Release()
		err := <-f.ended
		var e *fault.Error
		if !errors.As(err, &e) || e.Kind != fault.KindProtocol || postgres.Reason(err) != fault.ReasonRowTooLarge || e.LSN != 0x200 {
			t.Fatalf("error %v", err)
		}
		if e.Row == nil || e.Row.Table != "public.outbox" || e.Row.Commit != 0x300 || e.Row.Number != 2 || e.Row.Time.IsZero() {
			t.Errorf("the row is %+v", e.Row)
		}
		for _, part := range []string{"row 2 of its transaction", "committing at 0/300", "566231040 bytes", "1048576", "relay.max_row_bytes", "public.outbox"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("error %q does not say %q", err, part)
			}
		}
		if n := len(f.stream.frames.buf); n != frameBuffer {
			t.Errorf("the buffer grew to %d", n)
		}
	})
}

// Of a row that the server cannot decode it names the row; where its transaction commits,
// which the slot has to be moved past, is known from the transaction's beginning.
func TestUndecodableRowNamesTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, Options{})
		f.wal(pgoutputtest.Begin(0x300, 7), outboxRelation())
		failure, err := (&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "XX000", Message: "invalid memory alloc request size 1080000003",
			Where: `slot "s", output plugin "pgoutput", in the change callback, associated LSN 0/200`}).Encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		go f.send(failure)
		takeAny(f)
		if err := <-f.ended; postgres.Reason(err) != fault.ReasonUndecodable || !strings.Contains(err.Error(), "committing at 0/300") {
			t.Errorf("error %v", err)
		} else if e, _ := errors.AsType[*fault.Error](err); e.Row == nil || e.Row.Commit != 0x300 || e.Row.Time.IsZero() {
			t.Errorf("the row is %+v", e.Row)
		}
	})
}

// A server that cannot send a row lets go of the slot at once, in every session. So what lies
// before the row is confirmed after that, where nobody else has the slot.
func TestUndecodableRowLeavesWhatIsBeforeItConfirmed(t *testing.T) {
	failure := func(e *pgproto3.ErrorResponse) []byte {
		e.Severity, e.SeverityUnlocalized = "ERROR", "ERROR"
		text, err := e.Encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	const inCallback = `slot "s", output plugin "pgoutput", in the change callback, associated LSN 0/200`
	undecodable := failure(&pgproto3.ErrorResponse{Code: "XX000", Message: "invalid memory alloc request size 1080000003", Where: inCallback})
	for name, c := range map[string]struct {
		failure, answer []byte
		confirmed       wal.LSN
		queries         int
	}{
		"a row":           {undecodable, append(pgoutputtest.Frame('W', make([]byte, 3)), pgoutputtest.Frame('c', nil)...), 0x310, 1},
		"a slot in use":   {undecodable, failure(&pgproto3.ErrorResponse{Code: "55006", Message: `replication slot "slot" is active for PID 7`}), 0x310, 1},
		"nothing is new":  {undecodable, nil, testStart, 0},
		"the publication": {failure(&pgproto3.ErrorResponse{Code: "42704", Message: `publication "pub" does not exist`}), nil, 0x310, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := serve(t, Options{})
				go func() {
					f.wal(outboxRelation())
					f.wal(pgoutputtest.Begin(0x300, 7), pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "payload"), pgoutputtest.Commit(0x300, 0x310))
					f.send(append(c.failure, pgoutputtest.Frame('Z', []byte{'I'})...))
				}()
				for through := wal.LSN(0); through < 0x310; {
					b := <-f.out
					through = b.Through
					b.Release()
				}
				err := <-f.ended
				if f.lastSaid().flush > testStart {
					t.Fatal("it was confirmed before")
				}
				f.confirm(c.confirmed)
				if c.answer != nil {
					go func() {
						<-f.copyDone
						f.send(c.answer)
					}()
				}
				if closed := f.stream.Close(t.Context(), c.confirmed); !errors.Is(closed, err) {
					t.Errorf("close: %v, the stream ended with %v", closed, err)
				}
				<-f.hungUp
				told := f.lastSaid().flush
				if len(f.queries) != c.queries || c.queries > 0 && (told != c.confirmed || !strings.HasPrefix(f.queries[0], "START_REPLICATION SLOT ")) || c.queries == 0 && told > testStart {
					t.Errorf("told %s, %d commands: %q", told, len(f.queries), f.queries)
				}
			})
		})
	}
}

// What is no row of ours is read past whatever its size, and a row at the limit passes.
func TestOversizedMessagesOfOthersArePassed(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, Options{MaxRowBytes: 1 << 20, MaxBatchBytes: 1 << 30})
		go f.wal(pgoutputtest.Begin(0x300, 7), outboxRelation(), pgoutputtest.Relation(pgoutputtest.OtherOID, "public", "other", "body"), pgoutputtest.Insert(pgoutputtest.OtherOID, large),
			logical("other.prefix", large), pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", large[:1<<20-30]), pgoutputtest.Commit(0x300, 0x310))
		b := <-f.out
		rows := len(b.Rows)
		for b.Through == 0 {
			b.Release()
			b = <-f.out
			rows += len(b.Rows)
		}
		if rows != 1 {
			t.Errorf("%d rows", rows)
		}
		b.Release()
		f.stop()
		if err := <-f.ended; err != nil {
			t.Error(err)
		}
	})
}

// Closing leaves out what is still to come of the row, and confirms what was before.
func TestOversizedRowIsLeftOutByClose(t *testing.T) {
	const declared = 8 << 20
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, Options{MaxRowBytes: 1 << 20})
		rest := declared - len(pgoutputtest.Insert(pgoutputtest.OutboxOID, "2", "payload")) - 8<<10
		f.wal(pgoutputtest.Begin(0x300, 7), outboxRelation())
		sent := make(chan struct{})
		go func() {
			f.send(append(announced(declared, pgoutputtest.Insert(pgoutputtest.OutboxOID, "2", "payload")), make([]byte, 8<<10)...))
			close(sent)
		}()
		takeAny(f)
		if err := <-f.ended; postgres.Reason(err) != fault.ReasonRowTooLarge {
			t.Fatal(err)
		}
		go func() {
			<-sent
			<-f.copyDone
			chunk := make([]byte, 64<<10)
			for left := rest; left > 0; left -= len(chunk) {
				f.send(chunk[:min(left, len(chunk))])
			}
			f.send([]byte{'c', 0, 0, 0, 4})
		}()
		if err := f.stream.Close(t.Context(), testStart); err != nil {
			t.Error(err)
		}
		if n := len(f.stream.frames.buf); n != frameBuffer {
			t.Errorf("the buffer grew to %d", n)
		}
	})
}

func takeAny(f *fakeServer) {
	select {
	case b := <-f.out:
		b.Release()
	case <-time.After(time.Second):
	}
}

// endless gives zeros for ever.
type endless struct{ head []byte }

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.head)
	e.head = e.head[n:]
	if n == 0 {
		n = len(p)
		clear(p)
	}
	return n, nil
}

func TestFramesLeaveOutWithoutHolding(t *testing.T) {
	head := []byte{'d', 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[1:], 1<<30)
	f := newFrames(&endless{head: append(head, 'w')})
	f.limit = 1 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	passed := 0
	for {
		_, _, ok, err := f.next()
		if errors.Is(err, errOversized) {
			f.skip()
			continue
		}
		if err != nil { // what follows is no message
			break
		}
		if ok {
			t.Fatal("a message came out")
		}
		n, err := f.readMore()
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		passed += n
	}
	runtime.ReadMemStats(&after)
	// Others allocate a little meanwhile.
	if allocated := after.TotalAlloc - before.TotalAlloc; passed < 1<<30 || allocated > 16<<20 || len(f.buf) != frameBuffer {
		t.Errorf("%d bytes passed, %d allocated, the buffer has %d", passed, allocated, len(f.buf))
	}
}
