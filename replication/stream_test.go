package replication

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/rs/zerolog"
)

// A relay that is held up by Kafka does not read, so nothing tells it of the end but
// what it writes.
func TestEndOfAConnectionThatIsNotReadIsSeen(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
		go f.wal(txn(0x200, 7, "1")...) // nobody takes it
		pass(10*time.Second + resendInterval/2)
		synctest.Wait()
		select {
		case err := <-f.ended:
			t.Fatalf("ended with %v", err)
		default:
		}
		closed := time.Now()
		_ = f.conn.Close()
		if err := <-f.ended; err == nil {
			t.Error("ended without an error")
		}
		if took := time.Since(closed); took > 2*resendInterval {
			t.Errorf("after %s", took)
		}
	})
}

// Neither does what it hands over now and then: while a large transaction goes to a Kafka
// of middling speed, no single wait is long.
func TestEndOfAConnectionIsSeenBetweenShortWaits(t *testing.T) {
	bubble(t, Options{MaxBatchRows: 1}, func(t *testing.T, f *fakeServer) {
		rows := slices.Repeat([]string{"1"}, 2000)
		go func() {
			for _, m := range txn(0x200, 7, rows...) {
				if _, err := f.conn.Write(pgoutputtest.Frame('d', pgoutputtest.InWAL(0x200, pgoutputtest.Micros, m))); err != nil {
					return
				}
			}
		}()
		take := func() bool { // as Kafka does, every 60 ms
			pass(60 * time.Millisecond)
			select {
			case b := <-f.out:
				b.Release()
				return true
			case <-f.ended:
				return false
			}
		}
		began := time.Now()
		for time.Since(began) < 10*time.Second {
			if !take() {
				t.Fatal("ended")
			}
		}
		said := f.told()
		for i := 1; i < len(said); i++ {
			if pause := said[i].at - said[i-1].at; pause > 2*resendInterval {
				t.Fatalf("nothing was written for %s", pause)
			}
		}
	})
}

// Nor does one that has read to its end and waits for Kafka to take the last rows.
func TestEndOfAConnectionIsSeenWhileTheLastRowsAreDelivered(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
		f.readToTheStop()
		pass(20 * time.Second)
		synctest.Wait()
		select {
		case <-f.stream.Lost():
			t.Fatal("lost, and the server is there")
		default:
		}
		closed := time.Now()
		_ = f.conn.Close()
		<-f.stream.Lost()
		if took := time.Since(closed); took > 2*resendInterval {
			t.Errorf("after %s", took)
		}
		if err := f.stream.Close(t.Context(), 0x100); err == nil {
			t.Error("closed as if the position had been taken")
		}
	})
}

func TestConfirmedPositionIsToldSoonAndNothingElse(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
		go f.wal(txn(0x200, 7, "1")...)
		for n := 0; n < 1; {
			b := f.take()
			if b != nil && b.Through == 0x230 {
				n++
			}
		}
		pass(3 * time.Second)
		if s := f.lastSaid(); s.flush != testStart || s.write != 0x230 || !s.ask {
			t.Errorf("before delivery the server was told %+v", s)
		}
		f.confirm(0x230)
		pass(askInterval + time.Millisecond)
		if s := f.lastSaid(); s.flush != 0x230 {
			t.Errorf("0.1 s after delivery the server was told %+v", s)
		}
		n := len(f.told())
		pass(10 * time.Second)
		synctest.Wait()
		if got := len(f.told()) - n; got < 9 || got > 11 {
			t.Errorf("%d statuses in 10 idle seconds", got)
		}
	})
}

func TestKeepAliveInsideTransactionIsNotHandedOut(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
		messages := txn(0x200, 7, "1")
		go func() {
			f.wal(messages[:3]...)
			f.keepAlive(0x200, false)
			f.keepAlive(0x900, true)
		}()
		rows := 0
		for b := f.take(); b != nil; b = f.take() {
			if rows += len(b.Rows); b.Through != 0 || !b.Open {
				t.Errorf("through %s inside the transaction", b.Through)
			}
		}
		if rows != 1 || f.lastSaid().flush != testStart {
			t.Errorf("%d rows, told %+v", rows, f.lastSaid())
		}
		go f.wal(messages[3:]...)
		if b := f.take(); b == nil || b.Through != 0x230 || b.Open {
			t.Errorf("after the commit: %+v", b)
		}
		go f.keepAlive(0x900, false)
		if b := f.take(); b == nil || b.Through != 0x900 || len(b.Rows) != 0 {
			t.Errorf("after the keep-alive: %+v", b)
		}
	})
}

func TestServerIsAnsweredWhileNobodyTakesTheBatch(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
		go f.wal(txn(0x200, 7, "1")...)
		pass(5 * time.Minute)
		synctest.Wait()
		if n := len(f.told()); n < 299 {
			t.Errorf("%d statuses in 300 s of back-pressure", n)
		}
		select {
		case err := <-f.ended:
			t.Errorf("stream ended: %v", err)
		default:
		}
		if b := f.take(); b == nil || len(b.Rows) == 0 && !b.Open {
			t.Errorf("batch is lost: %+v", b)
		}
	})
}

func TestEqualRepliesAreHeldBack(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
		f.keepAlive(testStart, true)
		n := len(f.told())
		for range 1000 {
			f.keepAlive(testStart, true)
			pass(time.Millisecond)
		}
		synctest.Wait()
		if got := len(f.told()) - n; got < 3 || got > 5 {
			t.Errorf("%d answers to 1000 equal requests within a second", got)
		}
	})
}

func TestRequestThatBringsNewsIsAnsweredAtOnce(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
		pass(time.Second)
		f.keepAlive(0x500, false)
		if b := f.take(); b == nil || b.Through != 0x500 {
			t.Fatalf("got %+v", b)
		}
		f.confirm(0x500)
		f.keepAlive(0x500, true)
		if s := f.lastSaid(); s.flush != 0x500 || s.at != time.Since(f.begun) {
			t.Errorf("told %+v, now %s", s, time.Since(f.begun))
		}
	})
}

func TestSkippedPublicationFreezesThePosition(t *testing.T) {
	fields := func(kv ...string) (b pgoutputtest.Message) {
		for _, s := range kv {
			b = b.Str(s)
		}
		return b.U8(0)
	}
	for name, notice := range map[string]pgoutputtest.Message{
		"English":    fields("SWARNING", "VWARNING", "C55000", `Mskipped loading publication "pub"`),
		"translated": fields("SWARNUNG", "VWARNING", "C55000", `MPublikation »pub« wurde übersprungen`, "RLoadPublications"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
				go func() {
					f.wal(txn(0x200, 7, "1")...)
					var later []byte
					later = append(later, pgoutputtest.Frame('N', notice)...)
					later = append(later, pgoutputtest.Frame('d', pgoutputtest.KeepAlive(0x900, true))...)
					f.send(later)
				}()
				for b := f.take(); b != nil; b = f.take() {
					if b.Through > 0x230 {
						t.Errorf("handed out %s after the notice", b.Through)
					}
				}
				var e *fault.Error
				if err := <-f.ended; !errors.As(err, &e) || e.Kind != fault.KindDrift || postgres.Reason(err) != fault.ReasonPublicationMissing || e.LSN != 0x230 {
					t.Fatalf("got %v", err)
				}
				f.confirm(0x230)
				pass(10 * time.Second)
				f.closeOK(0x230)
				if s := f.lastSaid(); s.flush != testStart {
					t.Errorf("position moved after the notice: %+v", s)
				}
			})
		})
	}
	t.Run("the same each second", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			f := serve(t, Options{})
			f.stream.log = zerolog.New(&log)
			same := pgoutputtest.Frame('N', fields("SWARNING", "C55000", `Mslot "x" does not have active_pid`))
			for range 150 {
				f.send(same)
				pass(time.Second)
			}
			f.send(pgoutputtest.Frame('N', fields("SWARNING", "C55000", `Mslot "y" does not have active_pid`)))
			pass(time.Second)
			f.stop()
			<-f.ended
			if x, y := strings.Count(log.String(), `slot \"x\"`), strings.Count(log.String(), `slot \"y\"`); x != 3 || y != 1 || strings.Count(log.String(), `"left_out":59`) != 2 {
				t.Errorf("of 150 notices %d are in the log, of another one %d:\n%s", x, y, log.String())
			}
		})
	})
	t.Run("another warning", func(t *testing.T) {
		bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
			f.send(pgoutputtest.Frame('N', fields("SWARNING", "C55000", `Mreplication slot "x" specified in parameter "synchronized_standby_slots" does not have active_pid`)))
			f.keepAlive(0x900, false)
			if b := f.take(); b == nil || b.Through != 0x900 {
				t.Errorf("stream did not go on: %+v", b)
			}
		})
	})
}

func TestStopReadsOnToTheCommitInHandAndNoFurther(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
		first := txn(0x200, 7, "1", "2")
		f.wal(first[:3]...)
		synctest.Wait()
		f.stop()
		pass(5 * time.Second)
		go func() {
			var rest []byte // in one write, as one read
			for _, m := range slices.Concat(first[3:], txn(0x300, 8, "3")) {
				rest = append(rest, pgoutputtest.Frame('d', pgoutputtest.InWAL(0x200, pgoutputtest.Micros, m))...)
			}
			f.send(rest)
		}()
		rows, through := 0, wal.LSN(0)
		for b := f.take(); b != nil; b = f.take() {
			rows += len(b.Rows)
			through = max(through, b.Through)
		}
		if err := <-f.ended; err != nil || rows != 2 || through != 0x230 {
			t.Fatalf("%d rows through %s, error %v", rows, through, err)
		}
		// The consumer settles for longer than the server would wait for silence.
		n := len(f.told())
		pass(30 * time.Second)
		if synctest.Wait(); len(f.told())-n < 29 {
			t.Errorf("%d statuses in 30 s of settling", len(f.told())-n)
		}
		f.confirm(0x230)
		f.closeOK(0x230)
		if s := f.lastSaid(); s.flush != 0x230 || !s.ask {
			t.Errorf("final status %+v", s)
		}
	})
}

func TestStopBetweenTransactionsReturnsAtOnce(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
		synctest.Wait()
		f.stop()
		synctest.Wait()
		select {
		case err := <-f.ended:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("still running")
		}
	})
}

func TestAbortEndsAReadInsideATransaction(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
		f.wal(pgoutputtest.Begin(0x200, 7))
		synctest.Wait()
		f.stop()
		synctest.Wait()
		f.stream.Abort()
		if synctest.Wait(); !errors.Is(<-f.ended, ErrAborted) {
			t.Error("not aborted")
		}
		f.closeOK(testStart)
	})
}

func TestAbortEndsAnOffer(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
		go f.keepAlive(0x900, false)
		synctest.Wait()
		f.stream.Abort()
		if synctest.Wait(); !errors.Is(<-f.ended, ErrAborted) {
			t.Error("not aborted")
		}
		if b := f.take(); b != nil {
			t.Errorf("handed out after abort: %+v", b)
		}
	})
}

func TestSilentServerIsTakenForDead(t *testing.T) {
	bubble(t, Options{DeadAfter: 30 * time.Second}, func(t *testing.T, f *fakeServer) {
		err := <-f.ended
		if postgres.KindOf(err) != fault.KindRetry || postgres.Reason(err) != fault.ReasonTimeout {
			t.Errorf("got %v", err)
		}
		if took := time.Since(f.begun); took < 30*time.Second || took > 32*time.Second {
			t.Errorf("after %s", took)
		}
		asked := 0
		for _, s := range f.told() {
			asked += pgoutputtest.Bit(s.ask)
		}
		if asked < 29 {
			t.Errorf("asked for a sign of life %d times", asked)
		}
	})
}

// Slow brokers may take for a long time what was read from a server that has nothing else to send.
func TestQuietServerIsAskedWhileTheConfirmedPositionMoves(t *testing.T) {
	bubble(t, Options{DeadAfter: 30 * time.Second}, func(t *testing.T, f *fakeServer) {
		const transactions = 200
		go func() {
			for n := range wal.LSN(transactions) {
				f.wal(txn(0x200+0x100*n, uint32(n)+7, "1")...)
			}
		}()
		end := wal.LSN(0x230 + 0x100*(transactions-1))
		for b := f.take(); b == nil || b.Through < end; b = f.take() {
		}
		heard := len(f.told())
		for n := range wal.LSN(transactions) {
			f.confirm(0x230 + 0x100*n)
			pass(300 * time.Millisecond)
			synctest.Wait()
			for said := f.told(); heard < len(said); heard++ {
				if said[heard].ask {
					f.keepAlive(end, false)
				}
			}
			if silent := f.stream.Silent(); silent > 2*time.Second {
				t.Fatalf("silent for %s after %s, and the server answers whenever it is asked", silent, time.Since(f.begun))
			}
		}
	})
}

func TestStoppingServerIsNotKeptWaitingForKafka(t *testing.T) {
	bubble(t, Options{ShutdownGrace: 20 * time.Second}, func(t *testing.T, f *fakeServer) {
		go f.wal(txn(0x200, 7, "1")...)
		for b := f.take(); b == nil || b.Through == 0; b = f.take() {
		}
		stopping, left := time.Now(), make(chan struct{})
		go func() {
			defer close(left)
			for {
				if _, err := f.conn.Write(pgoutputtest.Frame('d', pgoutputtest.KeepAlive(0x230, true))); err != nil {
					return
				}
				pass(replyInterval)
			}
		}()
		err := <-f.ended
		if postgres.KindOf(err) != fault.KindRetry || postgres.Reason(err) != fault.ReasonServerShutdown || !strings.Contains(err.Error(), "0/230") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(stopping); took < 20*time.Second || took > 22*time.Second {
			t.Errorf("after %s", took)
		}
		_ = f.stream.Close(t.Context(), testStart)
		<-left
	})
}

func TestServerThatWaitsForNothingIsNotLeft(t *testing.T) {
	bubble(t, Options{ShutdownGrace: 20 * time.Second}, func(t *testing.T, f *fakeServer) {
		for range 200 {
			f.keepAlive(testStart, true)
			pass(replyInterval)
		}
		select {
		case err := <-f.ended:
			t.Errorf("ended with %v", err)
		default:
		}
	})
}

func TestConfirmingMoreThanWasHandedOutEndsTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, Options{})
		f.confirm(0xffff)
		var e *fault.Error
		if err := <-f.ended; !errors.As(err, &e) || e.Kind != fault.KindProtocol || e.LSN != 0xffff {
			t.Errorf("got %v", err)
		}
		for _, s := range f.told() {
			if s.flush != testStart {
				t.Errorf("told %+v", s)
			}
		}
	})
}

func TestServerShutdownIsARetry(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
		f.send(pgoutputtest.Frame('C', []byte("COPY 0\x00")))
		_ = f.conn.Close()
		if err := <-f.ended; postgres.KindOf(err) != fault.KindRetry || postgres.Reason(err) != fault.ReasonServerShutdown {
			t.Errorf("got %v", err)
		}
	})
}

func TestRowsBeforeAnErrorAreHandedOutWhenTheSessionLives(t *testing.T) {
	fields := func(severity, code, message string) pgoutputtest.Message {
		return pgoutputtest.Message{}.Str("S" + severity).Str("V" + severity).Str("C" + code).Str("M" + message).U8(0)
	}
	for name, c := range map[string]struct {
		last []byte
		rows int
		kind fault.Kind
	}{
		"drift":       {pgoutputtest.Frame('d', pgoutputtest.InWAL(0x300, 0, pgoutputtest.Insert(4711, "1"))), 1, fault.KindProtocol},
		"poison row":  {pgoutputtest.Frame('E', fields("ERROR", "42704", `publication "pub" does not exist`)), 1, fault.KindRefused},
		"termination": {pgoutputtest.Frame('E', fields("FATAL", "57P01", "terminating connection due to administrator command")), 0, fault.KindRetry},
		"garbage":     {[]byte{'d', 0, 0, 0, 0}, 0, fault.KindProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
				var all []byte
				for _, m := range txn(0x200, 7, "1") {
					all = append(all, pgoutputtest.Frame('d', pgoutputtest.InWAL(0x200, pgoutputtest.Micros, m))...)
				}
				go f.send(append(all, c.last...))
				rows := 0
				for b := f.take(); b != nil; b = f.take() {
					rows += len(b.Rows)
				}
				if err := <-f.ended; postgres.KindOf(err) != c.kind || rows != c.rows {
					t.Errorf("%d rows, %v", rows, err)
				}
			})
		})
	}
}

func TestCloseIsBoundedByItsContext(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
		f.stop()
		<-f.ended
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		if err := f.stream.Close(ctx, testStart); postgres.KindOf(err) != fault.KindRetry {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("took %s", took)
		}
		<-f.hungUp
	})
}
