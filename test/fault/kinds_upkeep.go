package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sandbox/objects"
)

// upkeepKinds are faults while the relay deletes, exports and marks rows beside its stream. All
// rows are due at once. They are drawn where they are asked for by name.
var upkeepKinds = []*kind{
	{name: "retention_kill", about: "kill -9 of the relay while it removes rows", takes: onRelay, jobs: true, most: 300 * ms, run: func(ctx context.Context, w *world, d *Done) error {
		n := w.relays.leader()
		w.relays.signal(n, syscall.SIGKILL, true)
		w.relays.ended(n, 5*sec)
		d.hold(ctx)
		return nil
	}},
	{name: "retention_pg_immediate", about: "immediate stop of PostgreSQL while rows are removed, which loses commits of ours", takes: onPostgres, jobs: true, run: func(ctx context.Context, w *world, _ *Done) error {
		return w.pg.Restart(context.WithoutCancel(ctx), sandbox.Immediate)
	}},
	{name: "retention_terminate", about: "the connections that remove rows are ended, again and again", takes: onPostgres, jobs: true, least: sec, most: 2 * sec, run: func(ctx context.Context, w *world, d *Done) error {
		for until := time.Now().Add(time.Duration(d.For)); time.Now().Before(until) && ctx.Err() == nil; rest(ctx, 100*ms) {
			if err := w.sql(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'cdc-relay maintenance'"); err != nil {
				return err
			}
		}
		return nil
	}},
	{name: "mark_locks", about: "an application holds the locks of rows, and then of the table", takes: onPostgres, jobs: true, least: sec, most: 4 * sec, run: func(ctx context.Context, w *world, d *Done) error {
		return w.session(ctx, func(conn *pgx.Conn) error {
			lock := "SELECT FROM outbox ORDER BY random() LIMIT 50 FOR UPDATE"
			if d.N%2 == 0 {
				lock = "LOCK TABLE outbox IN SHARE ROW EXCLUSIVE MODE"
			}
			if _, err := conn.Exec(ctx, "BEGIN; "+lock); err != nil {
				return err
			}
			d.hold(ctx)
			_, err := conn.Exec(context.WithoutCancel(ctx), "ROLLBACK")
			return err
		})
	}},
	{name: "export_s3_cut", about: "the store of exported files cuts connections, loses answers, is overloaded and shows wrong checksums", takes: []string{"store"}, jobs: true, then: toBucket, least: sec, most: 4 * sec, run: func(ctx context.Context, w *world, d *Done) error {
		if w.store == nil {
			d.Detail = "left out: rows go elsewhere"
			return nil
		}
		writes := []objects.Fault{objects.Cut, objects.Lost, objects.None, objects.Broken, objects.Conflict}
		looks := []objects.Fault{objects.None, objects.WrongSum, objects.NoSum, objects.Broken}
		w.store.Fail(func(r objects.Request) objects.Fault {
			switch r.Op {
			case "PutObject":
				return writes[(r.N+int(d.N%5))%len(writes)]
			case "HeadObject":
				return looks[(r.N+int(d.N%4))%len(looks)]
			}
			return objects.None
		})
		defer w.store.Fail(nil)
		d.hold(ctx)
		return nil
	}},
	{name: "export_disk_full", about: "the disk of exported files is full", takes: []string{"disk"}, jobs: true, then: toSmallDisk, least: 2 * sec, most: 5 * sec, run: func(ctx context.Context, w *world, d *Done) error {
		if !w.smallDisk {
			d.Detail = "left out: this account cannot make a small disk, or rows go elsewhere"
			return nil
		}
		filler := filepath.Join(w.exported(), "filler")
		defer os.Remove(filler)
		if err := fill(filler); err != nil {
			return err
		}
		d.hold(ctx)
		return nil
	}},
	{name: "prepared_transactions", about: "rows of transactions that are prepared, and committed or rolled back later", takes: onPostgres, jobs: true, least: sec, most: 4 * sec, run: func(ctx context.Context, w *world, d *Done) error {
		return w.extra(ctx, d, "BEGIN", func(conn *pgx.Conn, n int) error {
			name := fmt.Sprintf("%s_%d_%d", w.slot, d.N%1e6, n)
			if _, err := conn.Exec(ctx, "PREPARE TRANSACTION '"+name+"'"); err != nil {
				return err
			}
			rest(ctx, time.Duration(d.For)/4)
			end := "COMMIT PREPARED"
			if n%3 == 0 {
				end = "ROLLBACK PREPARED"
			}
			return w.sql(context.WithoutCancel(ctx), end+" '"+name+"'")
		})
	}},
	{name: "async_commits", about: "rows of commits that are not on the disk yet, and visible", takes: onPostgres, jobs: true, least: sec, most: 3 * sec, run: func(ctx context.Context, w *world, d *Done) error {
		return w.extra(ctx, d, "BEGIN; SET LOCAL synchronous_commit = off", func(conn *pgx.Conn, _ int) error {
			_, err := conn.Exec(ctx, "COMMIT")
			return err
		})
	}},
	{name: "savepoints", about: "rows of savepoints in transactions that stay open", takes: onPostgres, jobs: true, least: sec, most: 3 * sec, run: func(ctx context.Context, w *world, d *Done) error {
		return w.extra(ctx, d, "BEGIN; SAVEPOINT a", func(conn *pgx.Conn, n int) error {
			end := "RELEASE a"
			if n%3 == 0 {
				end = "ROLLBACK TO a"
			}
			if _, err := conn.Exec(ctx, end); err != nil {
				return err
			}
			rest(ctx, 50*ms)
			_, err := conn.Exec(ctx, "COMMIT")
			return err
		})
	}},
}

// session runs a step over a connection of its own. That the server is gone meanwhile is another
// fault's doing.
func (w *world) session(ctx context.Context, step func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, w.pg.URL(w.database))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return step(conn)
}

// extra writes rows in transactions of the fault's own, as long as the action says.
func (w *world) extra(ctx context.Context, d *Done, begin string, end func(conn *pgx.Conn, n int) error) error {
	random := rand.New(rand.NewPCG(w.plan.Seed, d.N))
	own := &writer{workload: w.load, random: random, keys: []string{newID(random), newID(random)}}
	return w.session(ctx, func(conn *pgx.Conn) error {
		for n, until := 0, time.Now().Add(time.Duration(d.For)); time.Now().Before(until) && ctx.Err() == nil; n++ {
			if _, err := conn.Exec(ctx, begin); err != nil {
				return err
			}
			for range 1 + random.IntN(4) {
				id, topic, key, kind, payload := own.event()
				if _, err := conn.Exec(ctx, insert, id, topic, key, kind, payload); err != nil {
					return err
				}
			}
			if err := end(conn, n); err != nil {
				return err
			}
		}
		return nil
	})
}

// upkeepSQL has all rows be old at once, and notes in the same transaction what the relay's own
// connections do to them.
const upkeepSQL = `ALTER TABLE outbox ALTER created_at SET DEFAULT now() - interval '3 hours';
	CREATE TABLE gone (id uuid, aggregate_type text, aggregate_id text, event_type text, payload text, how text, at timestamptz DEFAULT clock_timestamp());
	CREATE FUNCTION note_gone() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF TG_OP = 'DELETE' OR current_setting('application_name') = 'cdc-relay maintenance' THEN
			INSERT INTO public.gone SELECT OLD.id, OLD.aggregate_type, OLD.aggregate_id::text, OLD.event_type, OLD.payload::text, TG_OP;
		END IF;
		RETURN NULL;
	END $$;
	CREATE TRIGGER gone AFTER DELETE OR UPDATE OF published_at ON outbox FOR EACH ROW EXECUTE FUNCTION note_gone()`

// Where exported rows go.
const (
	toFolder    = "export"
	toBucket    = "export_bucket"
	toSmallDisk = "export_small_disk"
)

func (j *Jobs) exports() bool { return strings.HasPrefix(j.Then, "export") }

const bucketName, accessKey = "events", "AKIDEXAMPLE"

// storeEnv is what a relay finds the credentials of the store in.
var storeEnv = []string{"AWS_ACCESS_KEY_ID=" + accessKey, "AWS_SECRET_ACCESS_KEY=nobody-knows", "AWS_EC2_METADATA_DISABLED=true"}

// prepareExport makes what exported rows go to.
func (w *world) prepareExport(ctx context.Context) error {
	if w.plan.Jobs == nil {
		return nil
	}
	if err := os.MkdirAll(w.exported(), 0o755); err != nil {
		return err
	}
	switch w.plan.Jobs.Then {
	case toBucket:
		store, address, end, err := startStore()
		if err != nil {
			return err
		}
		w.store, w.storeURL = store, address
		w.closers = append(w.closers, end)
	case toSmallDisk:
		folder := absolute(w.exported())
		err := exec.CommandContext(ctx, "mount", "-t", "tmpfs", "-o", "size=32m,mode=755", "tmpfs", folder).Run()
		if w.smallDisk = err == nil; w.smallDisk { // else the action says so
			w.closers = append(w.closers, func() { _ = exec.Command("umount", folder).Run() })
		}
	}
	return nil
}

// startStore starts a store of exported files.
func startStore() (store *objects.Store, address string, end func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", nil, err
	}
	store = objects.New(bucketName, accessKey)
	server := &http.Server{Handler: store, ReadHeaderTimeout: sec, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(listener) }()
	return store, "http://" + listener.Addr().String(), func() { store.Close(); _ = server.Close() }, nil
}

// fill writes until the disk takes nothing more.
func fill(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for block := make([]byte, 64<<10); ; {
		if _, err := file.Write(block); errors.Is(err, syscall.ENOSPC) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// Jobs are what the relay does with delivered rows.
type Jobs struct {
	Then string `json:"then"` // of retention
	Mark bool   `json:"mark,omitempty"`
}

func newJobs(seed uint64) *Jobs {
	return &Jobs{Then: []string{"delete", toFolder, "none"}[seed%3], Mark: seed%2 == 0 || seed%3 == 2}
}

func (w *world) exported() string { return filepath.Join(w.dir, "export") }

// outboxConfig is the table's entry.
func (w *world) outboxConfig() string {
	entry := "table: public.outbox, preset: outbox"
	if w.plan.Registry {
		entry += ", value: avro, schema: {subject: '${aggregate_type}-${event_type}'}"
	}
	if j := w.plan.Jobs; j != nil {
		switch j.Then {
		case "delete":
			entry += ", retention: {then: delete, keep: 1h}"
		case toFolder, toSmallDisk:
			entry += fmt.Sprintf(", retention: {then: export, keep: 1h, export: {to: %q}}", absolute(w.exported()))
		case toBucket:
			entry += fmt.Sprintf(", retention: {then: export, keep: 1h, export: {to: s3://%s/outbox, endpoint: %q, path_style: true}}", bucketName, w.storeURL)
		}
		if j.Mark {
			entry += ", mark: {column: published_at}"
		}
	}
	return "outbox:\n  - {" + entry + "}\n"
}

func absolute(path string) string {
	whole, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	return whole
}
