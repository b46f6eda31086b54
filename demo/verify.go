package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
)

// patience is how long the relay may take to drain what was written; a relay
// that was just killed waits for the server to let go of its slot.
const patience = 60 * time.Second

// verify lets the relay catch up, stops it, reads every topic and compares.
func (s *show) verify() error {
	s.stage.kafka.Return()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	fmt.Println("\nthe order service has stopped; reading the topics from their beginning")
	if err := s.caughtUp(ctx); err != nil {
		return err
	}
	if err := s.stage.relay.stop(); err != nil {
		return err
	}
	if err := s.shop.adopt(ctx); err != nil {
		return err
	}
	records, err := sandbox.ReadTopics(ctx, s.stage.kafka.Addrs(), s.shop.ledger.Topics())
	if err != nil {
		return err
	}
	report := s.shop.ledger.Check(records)
	v := s.snapshot()
	fmt.Printf(`
  committed          %8d
  delivered          %8d
  missing            %8d
  duplicates         %8d
  order violations   %8d
  latency            p50 %s, p99 %s
`, report.Committed, report.Delivered, len(report.Missing), report.Duplicates, len(report.Disordered), milliseconds(v.p50), milliseconds(v.p99))
	if err := report.Err(); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if report.Committed == 0 {
		return errors.New("verify: nothing was committed, so nothing is proven")
	}
	fmt.Fprintf(os.Stdout, "\nevery committed event was delivered, in the order of its key\n\nthe relay ran with:\n\n%s", s.stage.yaml)
	return nil
}

// caughtUp waits until the relay has confirmed everything that is written now.
func (s *show) caughtUp(ctx context.Context) error {
	end, err := s.walEnd(ctx)
	if err != nil {
		return err
	}
	var last status.Status
	for {
		status, err := s.stage.relay.status(ctx)
		if err == nil {
			last = status
		}
		if err == nil && wal.LSN(status.LSN.Confirmed) >= end {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("verify: the relay did not catch up within %s: state %s %s, %d events in flight\n%s",
				patience, last.State, last.Message, last.InFlightEvents, &s.stage.relay.messages)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *show) walEnd(ctx context.Context) (wal.LSN, error) {
	conn, err := pgx.Connect(ctx, s.stage.postgres.URL(s.stage.database))
	if err != nil {
		return 0, fmt.Errorf("verify: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var text string
	if err := conn.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&text); err != nil {
		return 0, fmt.Errorf("verify: %w", err)
	}
	return wal.ParseLSN(text)
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}
