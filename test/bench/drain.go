package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// reader is the reference: how fast the server sends the same rows to a client
// that throws them away.
func (b *bench) reader(ctx context.Context) error {
	tool := findTool("pg_recvlogical", b.version)
	if tool == "" {
		fmt.Println("reader: pg_recvlogical is not installed; no reference")
		return nil
	}
	fmt.Println("reader: pg_recvlogical to /dev/null")
	conn, err := b.database(ctx, "reader", "reader")
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	end, err := fill(ctx, conn, b.rows, 10)
	if err != nil {
		return err
	}
	began := time.Now()
	cmd := exec.CommandContext(ctx, tool, "-d", b.pg.URL("reader"), "-S", "reader", "--start", "-f", "/dev/null", "--endpos", end.String(),
		"-o", "proto_version=1", "-o", "publication_names=bench", "--no-loop")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return err
	}
	b.report("pg_recvlogical", time.Since(began), usage{cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()})
	return nil
}

// drain is a backlog of small transactions.
func (b *bench) drain(ctx context.Context) error {
	fmt.Println("drain: a backlog in small transactions into in-process brokers")
	for _, perTxn := range []int{10, 1} {
		if err := b.backlog(ctx, fmt.Sprintf("drain%d", perTxn), perTxn); err != nil {
			return err
		}
	}
	return nil
}

// large is a single transaction.
func (b *bench) large(ctx context.Context) error {
	fmt.Println("large: one transaction")
	return b.backlog(ctx, "large", b.rows)
}

func (b *bench) backlog(ctx context.Context, name string, perTxn int) error {
	slot := "bench_" + name
	conn, err := b.database(ctx, name, slot)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	end, err := fill(ctx, conn, b.rows, perTxn)
	if err != nil {
		return err
	}
	return b.withBrokers(ctx, func() error {
		p, err := b.start(ctx, name, slot)
		if err != nil {
			return err
		}
		st, err := p.until(ctx, end)
		took := time.Since(p.began)
		use, stopErr := p.stop()
		if err != nil || stopErr != nil {
			return fmt.Errorf("%w %w", err, stopErr)
		}
		if err := b.verify(ctx, st); err != nil {
			return err
		}
		b.report("relay", took, use)
		return nil
	})
}

// verify counts what the brokers hold: each row once.
func (b *bench) verify(ctx context.Context, st relay.Status) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(b.brokers, ",")...))
	if err != nil {
		return err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx)
	if err != nil {
		return err
	}
	var records int64
	ends.Each(func(o kadm.ListedOffset) { records += o.Offset })
	if records != int64(b.rows) || st.EventsPublished != int64(b.rows) {
		return fmt.Errorf("the brokers hold %d records of %d rows; the relay counted %d", records, b.rows, st.EventsPublished)
	}
	return nil
}

func (b *bench) report(who string, took time.Duration, u usage) {
	perRow := u.cpu.Seconds() * 1e6 / float64(b.rows)
	fmt.Printf("  %-15s %8.0f rows/s  %5.2f s  %5.2f µs CPU a row", who, float64(b.rows)/took.Seconds(), took.Seconds(), perRow)
	if u.peak > 0 {
		fmt.Printf("  peak %.1f MB", float64(u.peak)/1e6)
	}
	fmt.Println()
}

func findTool(name, version string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, v := range []string{version, "18", "17", "16", "15", "14"} {
		path := filepath.Join("/usr/lib/postgresql", v, "bin", name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

func lsn(text string) pglogrepl.LSN {
	v, err := pglogrepl.ParseLSN(text)
	if err != nil {
		return 0
	}
	return v
}
