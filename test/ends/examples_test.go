package ends

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// example is a folder of examples/ and how its page says that it is prepared and run.
type example struct {
	folder  string
	needs   []string   // programs
	prepare [][]string // commands, in a copy of the folder
	write   []string
	consume []string
}

var examples = []example{
	{folder: "go", needs: []string{"go"}, prepare: [][]string{{"go", "build", "-o", "bin/", "./write", "./consume"}}, write: []string{"bin/write"}, consume: []string{"bin/consume"}},
	{
		folder: "python", needs: []string{"python3"},
		prepare: [][]string{{"python3", "-m", "venv", ".venv"}, {".venv/bin/pip", "install", "-q", "-r", "requirements.txt"}},
		write:   []string{".venv/bin/python", "write.py"}, consume: []string{".venv/bin/python", "consume.py"},
	},
	{
		folder: "typescript", needs: []string{"node", "npm"},
		prepare: [][]string{{"npm", "ci", "--no-audit", "--no-fund"}, {"npm", "run", "check"}, {"npm", "test"}},
		write:   []string{"node", "--import", "tsx", "write.ts"}, consume: []string{"node", "--import", "tsx", "consume.ts"},
	},
	{
		folder: "java", needs: []string{"javac", "mvn"},
		prepare: [][]string{{"mvn", "-q", "-B", "compile", "dependency:copy-dependencies"}},
		write:   []string{"java", "-cp", "target/classes:target/lib/*", "Write"}, consume: []string{"java", "-cp", "target/classes:target/lib/*", "Consume"},
	},
}

const installRuntimes = "bash .ci/install brings what a Debian lacks; Node 20 or newer comes from its own pages"

var prepared sync.Map // folder of examples/: func() (string, error)

// ready copies the example, with its locked versions, and has them installed, once.
func (x example) ready(t *testing.T) string {
	t.Helper()
	harness.NeedsServer(t, "PostgreSQL") // installing takes a minute, and would be for nothing
	for _, program := range x.needs {
		if _, err := exec.LookPath(program); err != nil {
			harness.Missing(t, program, err, installRuntimes)
		}
	}
	once, _ := prepared.LoadOrStore(x.folder, sync.OnceValues(func() (string, error) {
		dir, err := sandbox.TempDir("example")
		if err != nil {
			return "", err
		}
		harness.AtExit(func() error { return os.RemoveAll(dir) })
		root, err := filepath.Abs("../..")
		if err != nil {
			return "", err
		}
		// Go modules are replaced by ../../inbox.
		for _, module := range []string{"inbox", "outbox"} {
			if err := os.Symlink(filepath.Join(root, module), filepath.Join(dir, module)); err != nil {
				return "", err
			}
		}
		copied := filepath.Join(dir, "examples", x.folder)
		if err := os.MkdirAll(filepath.Dir(copied), 0o755); err != nil {
			return "", err
		}
		if err := os.CopyFS(copied, os.DirFS(filepath.Join(root, "examples", x.folder))); err != nil {
			return "", err
		}
		for _, command := range x.prepare {
			cmd := exec.Command(command[0], command[1:]...) //nolint:gosec // of the table above
			cmd.Dir = copied
			if out, err := cmd.CombinedOutput(); err != nil {
				return "", fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, out)
			}
		}
		return copied, nil
	}))
	dir, err := once.(func() (string, error))()
	if err != nil {
		t.Fatalf("prepare the example %s: %v", x.folder, err)
	}
	return dir
}

// shopFloor is a database with the shop's tables, a relay in front of a real Apache Kafka, and the
// environment that the examples read.
type shopFloor struct {
	*relaytest.Pipeline
	topic string
	env   []string
}

func newShopFloor(t *testing.T, more string) *shopFloor {
	t.Helper()
	db, brokers := harness.Postgres(t), harness.Kafka(t)
	schema, err := os.ReadFile("../../examples/schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	db.Exec(t, string(schema))
	createInbox(t, db)
	f := &shopFloor{topic: harness.Unique(t, "order-events")}
	brokers.CreateTopic(t, f.topic, 3)
	f.Pipeline = relaytest.New(t, db, brokers, []string{"{table: public.outbox, topic: " + f.topic + more + "}"})
	f.YAML = strings.Replace(f.YAML, "  compression: none\n", "", 1) // as users run it
	f.Setup(t)
	f.env = append(os.Environ(), "DATABASE_URL="+db.URL, "KAFKA_BROKERS="+strings.Join(brokers.Addrs, ","), "TOPIC="+f.topic, "GROUP="+harness.Unique(t, "billing"))
	return f
}

// process is a running program.
type process struct {
	cmd  *exec.Cmd
	out  harness.Output
	done chan struct{}
	err  error // when done
}

// stop asks the program to end, which a JVM does with an exit code of its own.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(relaytest.Patience):
		t.Errorf("it does not stop\n%s", p.out.String())
	}
}

// relay is the program, as it is built.
func (f *shopFloor) relay(t *testing.T) *process {
	t.Helper()
	p := &process{cmd: relayCommand(t, f.Pipeline, "run"), done: make(chan struct{})}
	p.start(t)
	return p
}

func (p *process) start(t *testing.T) {
	t.Helper()
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(p.kill)
}

func (f *shopFloor) run(t *testing.T, dir string, command []string, env ...string) *process {
	t.Helper()
	p := &process{done: make(chan struct{})}
	name := command[0]
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	p.cmd = exec.CommandContext(t.Context(), name, command[1:]...) //nolint:gosec // of the table above
	p.cmd.Dir, p.cmd.Env = dir, append(f.env[:len(f.env):len(f.env)], env...)
	p.start(t)
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (f *shopFloor) ledger(t *testing.T) int {
	return harness.Query[int](t, f.DB, "SELECT count(*)::int FROM ledger")
}

// verify compares the ledger with the orders.
func (f *shopFloor) verify(t *testing.T, orders int) {
	t.Helper()
	if n := harness.Query[int](t, f.DB, "SELECT count(*)::int FROM orders WHERE paid"); n != orders {
		t.Errorf("%d orders are paid, want %d", n, orders)
	}
	wrong := harness.Query[int](t, f.DB, `SELECT count(*)::int FROM (
		SELECT o.id FROM orders AS o LEFT JOIN ledger AS l ON l.order_id = o.id GROUP BY o.id, o.total
		HAVING array_agg(l.event || l.amount ORDER BY l.n) IS DISTINCT FROM ARRAY['OrderPlaced' || o.total, 'OrderPaid' || -o.total]) AS wrong`)
	if wrong > 0 || f.ledger(t) != 2*orders {
		t.Errorf("%d orders have not their two lines in the order in which they were written; %d lines of %d orders", wrong, f.ledger(t), orders)
	}
}

// Each example writes orders and consumes their events, while the relay and the consumer are killed.
func TestExamples(t *testing.T) {
	orders := 200
	if testing.Short() {
		orders = 100
	}
	for _, x := range examples {
		t.Run(x.folder, func(t *testing.T) {
			t.Parallel()
			dir := x.ready(t)
			f := newShopFloor(t, "")
			relay := f.relay(t)
			consumer := f.run(t, dir, x.consume)
			writer := f.run(t, dir, append(x.write[:len(x.write):len(x.write)], fmt.Sprint(orders)))
			for n := 1; n <= 3; n++ {
				f.awaitLedger(t, orders*n/3, consumer)
				relay.kill()
				relay = f.relay(t)
				if n < 3 {
					consumer.kill()
					consumer = f.run(t, dir, x.consume)
				}
			}
			<-writer.done
			if writer.err != nil {
				t.Fatalf("%v\n%s", writer.err, writer.out.String())
			}
			f.awaitLedger(t, 2*orders, consumer)
			// What comes once more, though nothing was killed, is found.
			sent := len(f.Brokers.Read(t, f.topic))
			consumer.stop(t)
			relay.stop(t)
			f.verify(t, orders)
			t.Logf("%d orders, %d records", orders, sent)
		})
	}
}

func (f *shopFloor) awaitLedger(t *testing.T, n int, consumer *process) {
	t.Helper()
	relaytest.Eventually(t, fmt.Sprint(n, " lines"), func() (bool, string) {
		select {
		case <-consumer.done:
			t.Fatalf("the consumer ended: %v\n%s", consumer.err, consumer.out.String())
		default:
		}
		got := f.ledger(t)
		return got >= n, fmt.Sprint(got, "\n", consumer.out.String())
	})
}

// kafkajs stops at the relay's default compression, with the error that the page has, and reads it
// with the line that the page gives.
func TestExamples_KafkajsNeedsACodecForTheDefaultCompression(t *testing.T) {
	t.Parallel()
	x := examples[2]
	dir := x.ready(t)
	f := newShopFloor(t, "")
	const orders = 50
	writer := f.run(t, dir, append(x.write[:len(x.write):len(x.write)], fmt.Sprint(orders)))
	<-writer.done
	if writer.err != nil {
		t.Fatalf("%v\n%s", writer.err, writer.out.String())
	}
	relay := f.relay(t)
	command := []string{"node", "--import", "tsx", "kafkajs.ts"}
	without := f.run(t, dir, command, "WITHOUT_SNAPPY=1")
	select {
	case <-without.done:
	case <-time.After(relaytest.Patience):
		t.Fatalf("it goes on without the codec\n%s", without.out.String())
	}
	if !strings.Contains(without.out.String(), "Snappy compression not implemented") {
		t.Errorf("the page has another error than this one:\n%s", without.out.String())
	}
	with := f.run(t, dir, command)
	f.awaitLedger(t, 2*orders, with)
	f.verify(t, orders)
	relay.stop(t)
}
