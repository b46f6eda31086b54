package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
)

// stage is what stands before the show begins: servers, tables, relay.
type stage struct {
	postgres *sandbox.Postgres
	kafka    *sandbox.Kafka
	database string
	made     bool // the database was made on a given server, and goes at the end
	slot     string
	http     string // host:port of the relay's page
	yaml     string // the relay's configuration
	relay    *relayProcess
	origin   string
}

// topics are what the order service's events are routed to.
var topics = []string{"order-events", "payment-events"}

const partitions = 3

// build sets everything up. What it returns is to be struck even with an error.
func build(ctx context.Context, o options) (*stage, error) {
	s := &stage{database: "shop", slot: "cdc_relay_demo"}
	began := time.Now()
	var err error
	s.postgres, err = sandbox.StartPostgres(ctx, sandbox.PostgresOptions{URL: o.postgresURL, Log: os.Stdout})
	if err != nil {
		return nil, err
	}
	seeds := map[string]int32{}
	for _, topic := range topics {
		seeds[topic] = partitions
	}
	if s.kafka, err = sandbox.StartKafka(sandbox.KafkaOptions{Topics: seeds}); err != nil {
		return s, err
	}
	if err := s.createDatabase(ctx); err != nil {
		return s, err
	}
	cfg, err := s.configure()
	if err != nil {
		return s, err
	}
	if err := s.setup(ctx, cfg); err != nil {
		return s, err
	}
	s.relay = newRelayProcess(s.yaml, s.http)
	if err := s.relay.start(); err != nil {
		return s, err
	}
	if err := s.relay.waitReady(ctx); err != nil {
		return s, err
	}
	version, err := s.postgres.Version(ctx)
	if err != nil {
		return s, err
	}
	s.origin = fmt.Sprintf("PostgreSQL %s (%s) and in-process brokers, ready after %.1fs", version, s.postgres.Origin(), time.Since(began).Seconds())
	return s, nil
}

// createDatabase takes names that are free: on a given server somebody else's
// demo may be running.
func (s *stage) createDatabase(ctx context.Context) error {
	if !s.postgres.Ours() {
		suffix := "_" + strconv.Itoa(os.Getpid())
		s.database += suffix
		s.slot += suffix
	}
	conn, err := pgx.Connect(ctx, s.postgres.URL("postgres"))
	if err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+s.database); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	s.made = true
	return nil
}

// configure writes the configuration as a user would and reads it back.
func (s *stage) configure() (*config.Config, error) {
	port, err := freePort(8080)
	if err != nil {
		return nil, err
	}
	s.http = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	s.yaml = fmt.Sprintf(`postgres:
  url: %s
  slot: %s
  publication: %s
outbox:
  - table: public.outbox
kafka:
  brokers: [%s]
  create_topics: {enabled: true, partitions: %d}
http: {listen: %s}
`, s.postgres.URL(s.database), s.slot, s.slot, strings.Join(s.kafka.Addrs(), ", "), partitions, s.http)
	return loadConfig(s.yaml)
}

// loadConfig takes nothing but the text: no file, no environment.
func loadConfig(yaml string) (*config.Config, error) {
	return config.Load(config.Options{
		Path:    "demo.yaml",
		Environ: []string{},
		ReadFile: func(name string) ([]byte, error) {
			if name == "demo.yaml" {
				return []byte(yaml), nil
			}
			return os.ReadFile(name)
		},
	})
}

// setup is `cdc-relay setup --create-table`, and the order service's own table.
func (s *stage) setup(ctx context.Context, cfg *config.Config) error {
	_, err := provision.Setup(ctx, cfg.Relay().Replication, provision.SetupOptions{
		CreateTable: func(t wal.Table) (string, error) {
			return migrations.Table(migrations.DefaultPreset, t.Schema, t.Name)
		},
	})
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, s.postgres.URL(s.database))
	if err != nil {
		return fmt.Errorf("create orders: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "CREATE TABLE orders (id uuid PRIMARY KEY, status text NOT NULL, total numeric(10,2) NOT NULL)"); err != nil {
		return fmt.Errorf("create orders: %w", err)
	}
	return nil
}

// strike takes everything down.
func (s *stage) strike() error {
	var errs []error
	if s.relay != nil {
		errs = append(errs, s.relay.stop())
	}
	if s.made && !s.postgres.Ours() {
		errs = append(errs, s.dropDatabase())
	}
	if s.kafka != nil {
		errs = append(errs, s.kafka.Close())
	}
	return errors.Join(append(errs, s.postgres.Close())...)
}

func (s *stage) dropDatabase() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.postgres.URL("postgres"))
	if err != nil {
		return fmt.Errorf("drop database %s: %w", s.database, err)
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1 AND NOT active", s.slot)
	if err == nil {
		_, err = conn.Exec(ctx, "DROP DATABASE "+s.database+" WITH (FORCE)")
	}
	if err != nil {
		return fmt.Errorf("drop database %s: %w", s.database, err)
	}
	return nil
}

// freePort is the wanted port where nobody listens on it, else any.
func freePort(wanted int) (int, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(wanted)))
	if err != nil {
		return sandbox.FreePort()
	}
	return wanted, listener.Close()
}
