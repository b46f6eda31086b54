package kafkainbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
)

// standIn answers the statements of a round with Offsets as PostgreSQL does, and those that end connections.
type standIn struct {
	listener net.Listener
	served   sync.WaitGroup // connections

	mu    sync.Mutex // guards the following
	open  map[net.Conn]bool
	tries int  // in the row of inbox_attempts
	keeps bool // that row, whoever deletes it
}

const (
	endsAlone  = "ends its own connection"
	endsServer = "crashes its process, and so the server"
	endsBeside = "is there when another process crashes"
)

func newStandIn(t *testing.T) *standIn {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &standIn{listener: listener, open: make(map[net.Conn]bool)}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.open[conn] = true
			s.mu.Unlock()
			s.served.Go(func() { s.serve(conn) })
		}
	}()
	return s
}

func (s *standIn) serve(conn net.Conn) {
	defer conn.Close()
	backend := pgproto3.NewBackend(conn, conn)
	if _, err := backend.ReceiveStartupMessage(); err != nil {
		return
	}
	status := byte('I')
	backend.Send(&pgproto3.AuthenticationOk{})
	backend.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
	backend.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
	for {
		backend.Send(&pgproto3.ReadyForQuery{TxStatus: status})
		if backend.Flush() != nil {
			return
		}
		message, err := backend.Receive()
		query, is := message.(*pgproto3.Query)
		if err != nil || !is {
			return
		}
		status = s.answer(conn, backend, query.String, status)
	}
}

func (s *standIn) answer(conn net.Conn, backend *pgproto3.Backend, sql string, status byte) byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := func(tag string) { backend.Send(&pgproto3.CommandComplete{CommandTag: []byte(tag)}) }
	switch {
	case strings.EqualFold(sql[:min(5, len(sql))], "begin"):
		done("BEGIN")
		return 'T'
	case sql == commitRound, sql == "rollback":
		done(strings.ToUpper(sql))
		return 'I'
	case sql == endsAlone, sql == endsServer, sql == endsBeside:
		s.end(conn, sql)
	case strings.HasPrefix(sql, "INSERT INTO") && strings.Contains(sql, "inbox_attempts"):
		s.tries++
		backend.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("n"), DataTypeOID: 23, DataTypeSize: 4}}})
		backend.Send(&pgproto3.DataRow{Values: [][]byte{strconv.AppendInt(nil, int64(s.tries), 10)}})
		done("INSERT 0 1")
	case strings.HasPrefix(sql, "DELETE FROM") && s.keeps:
		backend.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: "P0001"})
	case strings.HasPrefix(sql, "DELETE FROM"):
		s.tries = 0
		done("DELETE 1")
	case strings.HasPrefix(sql, "UPDATE"):
		done("UPDATE 1")
	default:
		backend.Send(&pgproto3.EmptyQueryResponse{})
	}
	return status
}

// end ends connections. A server of which a process crashes tells the others.
func (s *standIn) end(conn net.Conn, how string) {
	notice, _ := (&pgproto3.NoticeResponse{Severity: "WARNING", Code: "57P02"}).Encode(nil)
	for other := range s.open {
		if how != endsAlone && (other != conn || how == endsBeside) {
			_, _ = other.Write(notice)
		}
		if how != endsAlone || other == conn {
			other.Close()
			delete(s.open, other)
		}
	}
}

// watchedOn is a partition on a stand-in for the database, its queue, and a record that is watched.
func (s *standIn) watchedOn(t *testing.T, handle func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error) (*partition, *queue, []item) {
	t.Helper()
	db, err := pgxpool.New(t.Context(), fmt.Sprintf("postgres://u@%s/d?sslmode=disable&default_query_exec_mode=simple_protocol&pool_max_conns=2", s.listener.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	c, err := New(Config{Consumer: "billing", Group: "billing", Brokers: []string{"127.0.0.1:1"}, Topics: []string{"t"}, DB: db, Offsets: true, Handle: handle})
	if err != nil {
		t.Fatal(err)
	}
	p := newPartition(c, "t", 0)
	p.opened.next = 5
	return p, p.queues[0], []item{{record: &kgo.Record{Topic: "t", Offset: 5}, watched: true}}
}

// The second loss of a record that is alone is its fault where another connection stays, or the process
// that crashed was its own.
func TestLost_IsTheRecordsFaultByWhatOtherConnectionsSee(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]*ConnectionError{endsAlone: {}, endsServer: {Crashed: true}, endsBeside: nil} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newStandIn(t)
			cured := false
			p, q, items := s.watchedOn(t, func(ctx context.Context, tx pgx.Tx, _ *kgo.Record) error {
				if cured {
					return nil
				}
				_, err := tx.Exec(ctx, how)
				return err
			})
			for attempt := 1; attempt <= 3; attempt++ {
				err := p.guarded(q, items)
				var gone *lostError
				var ours *ConnectionError
				if first := attempt == 1 || want == nil; errors.As(err, &gone) != first || errors.As(err, &ours) == first || !first && ours.Crashed != want.Crashed {
					t.Errorf("attempt %d: %v", attempt, err)
				}
			}
			cured = true
			if err := p.guarded(q, items); err != nil {
				t.Errorf("without a loss: %v", err)
			}
			if n := p.opened.suspects.Load(); n != 0 {
				t.Errorf("%d records are suspect, of a partition that is not", n)
			}
			p.c.cfg.DB.Close()
			closed := make(chan struct{})
			go func() { s.served.Wait(); close(closed) }()
			select {
			case <-closed:
			case <-time.After(time.Minute):
				t.Error("a connection is left open")
			}
		})
	}
}

// An attempt that came back, and whose row the database could not delete then, is no end of this process
// for the next one either.
func TestGuarded_DeletesTheRowOfAnAttemptThatCameBackLater(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	tries := 0
	p, q, items := s.watchedOn(t, func(context.Context, pgx.Tx, *kgo.Record) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		tries = s.tries
		return errors.New("not yet")
	})
	s.keeps = true
	for range crashTries {
		_ = p.guarded(q, items)
	}
	if tries != crashTries {
		t.Fatalf("the row counts %d attempts of %d", tries, crashTries)
	}
	s.mu.Lock()
	s.keeps = false
	s.mu.Unlock()
	if _ = p.guarded(q, items); tries != 1 {
		t.Errorf("the row counts %d attempts during one", tries)
	}
}
