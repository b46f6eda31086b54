package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// The program is also the processes that it needs and that must not be itself:
// brokers, a relay whose sink keeps nothing, a polling relay.
const roleVariable = "CDC_RELAY_BENCH_ROLE"

func startRole(role string, env ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), roleVariable+"="+role), env...)
	return launch(cmd)
}

func play(role string) int {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // the end of its input is the end of a role
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var err error
	switch role {
	case "brokers":
		err = serveBrokers(ctx)
	case "discard":
		err = discard(ctx)
	case "polling":
		err = poll(ctx)
	case "copy":
		err = copyTable(ctx)
	default:
		err = fmt.Errorf("there is no role %q", role)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		return 1
	}
	return 0
}

func serveBrokers(ctx context.Context) error {
	k, err := sandbox.StartKafka(sandbox.KafkaOptions{})
	if err != nil {
		return err
	}
	defer k.Close()
	fmt.Println(strings.Join(k.Addrs(), ","))
	<-ctx.Done()
	return nil
}

// checked is a sink that keeps nothing but account.
type checked struct {
	sinktest.Discard
	account *ledger
	whole   chan struct{}
	once    sync.Once
}

func (c *checked) Send(ctx context.Context, records []record.Record, done func(error)) {
	for i := range records {
		c.account.add(records[i].Value)
	}
	c.Discard.Send(ctx, records, done)
	if c.account.count >= c.account.rows {
		c.once.Do(func() { close(c.whole) })
	}
}

// discard is the relay with its sink replaced, and nothing else.
func discard(ctx context.Context) error {
	debug.SetGCPercent(20) // as the program does
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1) // as the program does with one shard
	}
	rows, err := strconv.Atoi(os.Getenv("BENCH_ROWS"))
	if err != nil {
		return err
	}
	cfg, err := config.Load(config.Options{Environ: os.Environ()})
	if err != nil {
		return err
	}
	settings := cfg.Relay().WithDefaults()
	routes, err := router.New(settings.Router)
	if err != nil {
		return err
	}
	settings.Stream.Binary = func(tables []*wal.Relation, _, _ wal.LSN) bool {
		for _, t := range tables {
			if !routes.BinarySafe(t) {
				return false
			}
		}
		return true
	}
	s := &checked{account: newLedger(rows), whole: make(chan struct{})}
	r := relay.New(settings, relay.Parts{
		Router: routes,
		Source: func(ctx context.Context) (relay.Source, error) {
			return replication.Open(ctx, settings.Replication, settings.Stream, zerolog.Nop())
		},
		Sink: func() (sink.Sink, error) { return s, nil },
	}, relay.Events{}, zerolog.New(os.Stderr).Level(zerolog.WarnLevel))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	select {
	case <-s.whole:
	case err := <-ended:
		return fmt.Errorf("the relay ended early: %w", err)
	}
	if err := s.account.verdict(); err != nil {
		return err
	}
	fmt.Println("verified")
	return <-ended
}

// poll is what many write by hand: take some rows under a lock, send them, wait,
// mark them, commit.
func poll(ctx context.Context) error {
	limit, err := strconv.Atoi(os.Getenv("BENCH_POLL_ROWS"))
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, os.Getenv("BENCH_POSTGRES_URL"))
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(os.Getenv("BENCH_KAFKA_BROKERS"), ",")...),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer client.Close()
	for ctx.Err() == nil {
		n, err := pollOnce(ctx, conn, client, limit)
		if err != nil {
			return err
		}
		if n == 0 {
			pause(ctx, pollInterval)
		}
	}
	return nil
}

func pollOnce(ctx context.Context, conn *pgx.Conn, client *kgo.Client, limit int) (int, error) {
	n := 0
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT id::text, aggregate_type, aggregate_id::text, event_type, payload::text FROM outbox
			WHERE published_at IS NULL ORDER BY created_at, id LIMIT $1 FOR UPDATE SKIP LOCKED`, limit)
		if err != nil {
			return err
		}
		type row struct{ ID, Type, Key, Event, Payload string }
		taken, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
		if err != nil || len(taken) == 0 {
			return err
		}
		records, ids := make([]*kgo.Record, len(taken)), make([]string, len(taken))
		for i, r := range taken {
			ids[i] = r.ID
			records[i] = &kgo.Record{Topic: r.Type + "-events", Key: []byte(r.Key), Value: []byte(r.Payload),
				Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(r.ID)}, {Key: "eventType", Value: []byte(r.Event)}}}
		}
		if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return err
		}
		n = len(taken)
		_, err = tx.Exec(ctx, "UPDATE outbox SET published_at = now() WHERE id = ANY ($1::text[]::uuid[])", ids)
		return err
	})
	return n, err
}
