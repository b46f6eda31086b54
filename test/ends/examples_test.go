package ends

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// example is a folder of examples/ and how its page says that it is prepared and run.
type example struct {
	name     string // empty: folder
	folder   string
	needs    []string   // programs
	installs bool       // the first line of the page's commands installs what the others need
	prepare  [][]string // commands behind that line, in a copy of the folder
	write    []string
	consume  []string
}

var preparePython = [][]string{{".venv/bin/pip", "install", "-q", "-r", "requirements-async.txt"}}

var examples = []example{
	{folder: "go", needs: []string{"go"}, prepare: [][]string{{"go", "build", "-o", "bin/", "./write", "./consume"}}, write: []string{"bin/write"}, consume: []string{"bin/consume"}},
	{
		folder: "python", needs: []string{"python3"}, installs: true, prepare: preparePython,
		write: []string{".venv/bin/python", "write.py"}, consume: []string{".venv/bin/python", "consume.py"},
	},
	{
		name: "python asyncio", folder: "python", needs: []string{"python3"}, installs: true, prepare: preparePython,
		write: []string{".venv/bin/python", "write.py"}, consume: []string{".venv/bin/python", "consume_async.py"},
	},
	{
		folder: "typescript", needs: []string{"node", "npm"}, installs: true,
		write: []string{"node", "--import", "tsx", "write.ts"}, consume: []string{"node", "--import", "tsx", "consume.ts"},
	},
	{
		folder: "prisma", needs: []string{"node", "npm"}, installs: true,
		write: []string{"node", "--import", "tsx", "write.ts"}, consume: []string{"node", "--import", "tsx", "consume.ts"},
	},
	{folder: "java", needs: []string{"javac", "mvn"}, installs: true, write: java("Write"), consume: java("Consume")},
	{folder: "spring", needs: []string{"javac", "mvn"}, installs: true, write: java("write.Write"), consume: java("consume.Consume")},
}

// quickJava are options for a Java that runs for seconds: they save a third to a half of its CPU.
var quickJava = []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}

// quickInstall is an environment in which Maven is quick, and npm asks for nothing but packages.
var quickInstall = []string{
	"MAVEN_OPTS=" + strings.Join(append(quickJava, os.Getenv("MAVEN_OPTS")), " "), "npm_config_audit=false", "npm_config_fund=false",
}

// java is the command for a class of the example, or of folders before it.
func java(class string, before ...string) []string {
	folders := append(before, "target/classes", "target/lib/*")
	return slices.Concat([]string{"java"}, quickJava, []string{"-cp", strings.Join(folders, ":"), class})
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
	commands := x.prepare
	if x.installs {
		commands = slices.Concat([][]string{{"bash", "-e", "-c", x.page(t)[0]}}, commands)
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
		for _, command := range commands {
			cmd := exec.Command(command[0], command[1:]...) //nolint:gosec // of the table above
			cmd.Dir, cmd.Env = copied, append(os.Environ(), quickInstall...)
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
	group string
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
	f := &shopFloor{topic: harness.Unique(t, "order-events"), group: harness.Unique(t, "billing")}
	brokers.CreateTopic(t, f.topic, 3)
	f.Pipeline = relaytest.New(t, db, brokers, []string{"{table: public.outbox, topic: " + f.topic + more + "}"})
	f.YAML = strings.Replace(f.YAML, "  compression: none\n", "", 1) // as users run it
	f.Setup(t)
	f.env = append(os.Environ(), "DATABASE_URL="+db.URL, "KAFKA_BROKERS="+strings.Join(brokers.Addrs, ","), "TOPIC="+f.topic, "GROUP="+f.group)
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

// forget takes members out of the group, but for those of the clients named. They are dead, and the
// brokers would learn that by the end of their sessions: 10 to 45 seconds, for which others wait.
func forget(t *testing.T, brokers *harness.Brokers, group string, but ...string) {
	t.Helper()
	described, err := brokers.Admin(t).DescribeGroups(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = group
	for _, m := range described[group].Members {
		if slices.Contains(but, m.ClientID) {
			continue
		}
		member := kmsg.NewLeaveGroupRequestMember()
		member.MemberID = m.MemberID
		leave.Members = append(leave.Members, member)
	}
	if len(leave.Members) == 0 {
		return
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers.Addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := leave.RequestWith(t.Context(), client); err != nil {
		t.Fatal(err)
	}
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
		t.Run(cmp.Or(x.name, x.folder), func(t *testing.T) {
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
					forget(t, f.Brokers, f.group)
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

// awaitLedger waits for lines as long as some come.
func (f *shopFloor) awaitLedger(t *testing.T, n int, consumer *process) {
	t.Helper()
	for last, got := 0, f.ledger(t); got < n; last = got {
		relaytest.Eventually(t, fmt.Sprintf("more lines than %d of %d", last, n), func() (bool, string) {
			select {
			case <-consumer.done:
				t.Fatalf("the consumer ended: %v\n%s", consumer.err, consumer.out.String())
			default:
			}
			got = f.ledger(t)
			return got > last, consumer.out.String()
		})
	}
}

// A record without an id is not known by anything: two of them are not one event. The consumers
// stop at the first, and neither pass it nor claim anything.
func TestExamples_StopAtARecordWithoutAnID(t *testing.T) {
	for _, x := range examples {
		t.Run(cmp.Or(x.name, x.folder), func(t *testing.T) {
			t.Parallel()
			dir := x.ready(t)
			f := newShopFloor(t, "")
			client, err := kgo.NewClient(kgo.SeedBrokers(f.Brokers.Addrs...), kgo.DefaultProduceTopic(f.topic))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			for range 2 {
				record := &kgo.Record{Key: []byte("7f0c5d5e-0000-4000-8000-000000000001"), Value: []byte(`{"amount": 1}`), Headers: []kgo.RecordHeader{{Key: "eventType", Value: []byte("OrderPlaced")}}}
				if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			consumer := f.run(t, dir, x.consume)
			relaytest.Eventually(t, "it stops at the record", func() (bool, string) {
				out := consumer.out.String()
				select {
				case <-consumer.done:
					if consumer.err == nil {
						t.Fatalf("it ends as if all were well\n%s", out)
					}
					return true, ""
				default:
				}
				return strings.Contains(out, "partition waits at a record") || strings.Contains(out, "attempt 2: "), out
			})
			if lines, keys := f.ledger(t), harness.Query[int](t, f.DB, "SELECT count(*)::int FROM inbox"); lines != 0 || keys != 0 {
				t.Errorf("%d lines, %d keys", lines, keys)
			}
		})
	}
}

// finals throws an exception of each class after which Spring's error handler leaves a record out by
// default, one at each call. NoSuchMethodException is no RuntimeException.
const finals = `package consume;

import java.util.Iterator;
import org.springframework.kafka.listener.ExceptionClassifier;
import org.springframework.objenesis.SpringObjenesis;

final class Finals {
    private static final Iterator<Class<? extends Throwable>> ALL = ExceptionClassifier.defaultFatalExceptionsList().iterator();

    private Finals() {}

    @SuppressWarnings("unchecked")
    static <T extends Throwable> void next() throws T {
        if (ALL.hasNext()) {
            throw (T) new SpringObjenesis().newInstance(ALL.next());
        }
    }
}
`

// Spring's default error handler would leave out a record that has failed ten times, or once with an
// exception that it takes for final. By default its transactions are committed when an exception that
// is no RuntimeException leaves them: the key would be claimed without its work.
func TestExamples_SpringLeavesNoRecordOutThatFails(t *testing.T) {
	t.Parallel()
	x := exampleOf("spring")
	dir := x.ready(t)
	source, err := os.ReadFile(filepath.Join(dir, "src/main/java/consume/Consume.java"))
	if err != nil {
		t.Fatal(err)
	}
	const call = "                handle(event);\n"
	if strings.Count(string(source), call) != 1 {
		t.Fatalf("the example has %q not once", call)
	}
	failing := t.TempDir()
	for name, text := range map[string]string{"Finals.java": finals, "Consume.java": strings.Replace(string(source), call, "                Finals.next();\n"+call, 1)} {
		if err := os.WriteFile(filepath.Join(failing, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	javac := exec.CommandContext(t.Context(), "javac", "-parameters", "-cp", "target/classes:target/lib/*", "-d", failing, filepath.Join(failing, "Finals.java"), filepath.Join(failing, "Consume.java")) //nolint:gosec // of the example
	javac.Dir = dir
	if out, err := javac.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f := newShopFloor(t, "")
	const orders = 20
	f.placeOrders(t, orders)
	relay := f.relay(t)
	f.DB.Exec(t, "ALTER TABLE ledger RENAME TO away")
	consumer := f.run(t, dir, java("consume.Consume", failing))
	relaytest.Eventually(t, "a record fails more than ten times", func() (bool, string) {
		out := consumer.out.String()
		return strings.Contains(out, "attempt 12: topic "+f.topic), out
	})
	for _, final := range []string{"DeserializationException", "MessageConversionException", "ConversionException", "MethodArgumentResolutionException", "NoSuchMethodException", "ClassCastException"} {
		if !strings.Contains(consumer.out.String(), "."+final+"\n") {
			t.Errorf("no record failed with a %s\n%s", final, consumer.out.String())
		}
	}
	f.DB.Exec(t, "ALTER TABLE away RENAME TO ledger")
	f.awaitLedger(t, 2*orders, consumer)
	f.verify(t, orders)
	consumer.stop(t)
	relay.stop(t)
}

// A handler that hides the failure of a statement leaves a transaction that PostgreSQL rolls back at
// COMMIT without an error. The consumers notice, and do not commit the offset.
func TestExamples_AHandlerThatHidesAFailureLosesNothing(t *testing.T) {
	for _, hidden := range []struct{ name, file, call, hiding, entry string }{
		{"python", "consume.py", "            handle(db, message)\n", "            try:\n                handle(db, message)\n            except psycopg.Error:\n                pass\n", ""},
		{"python asyncio", "consume_async.py", "                await handler(session, record)\n", "                try:\n                    await handler(session, record)\n                except Exception:\n                    pass\n", ""},
		{"typescript", "once.ts", "await handle(tx, event)", "await handle(tx, event).catch(() => undefined)", "consume.ts"},
		{"prisma", "consume.ts", "await handle(tx, record)", "await handle(tx, record).catch(() => undefined)", ""},
	} {
		t.Run(hidden.name, func(t *testing.T) {
			t.Parallel()
			x := exampleOf(hidden.name)
			dir := x.ready(t)
			f := newShopFloor(t, "")
			hiding := func(file, old, replacement string) {
				t.Helper()
				text, err := os.ReadFile(filepath.Join(dir, file))
				if err != nil {
					t.Fatal(err)
				}
				if strings.Count(string(text), old) != 1 {
					t.Fatalf("%s has %q not once", file, old)
				}
				if err := os.WriteFile(filepath.Join(dir, "hiding_"+file), []byte(strings.Replace(string(text), old, replacement, 1)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			hiding(hidden.file, hidden.call, hidden.hiding)
			if hidden.entry != "" {
				hiding(hidden.entry, "./"+hidden.file, "./hiding_"+hidden.file)
			}
			command := slices.Clone(x.consume)
			command[len(command)-1] = "hiding_" + command[len(command)-1]
			const orders = 5
			f.placeOrders(t, orders)
			relay := f.relay(t)
			f.DB.Exec(t, "ALTER TABLE ledger RENAME TO away")
			failing := f.run(t, dir, command)
			relaytest.Eventually(t, "it ends at the record", func() (bool, string) {
				select {
				case <-failing.done:
					return failing.err != nil, failing.out.String()
				default:
					return false, failing.out.String()
				}
			})
			f.DB.Exec(t, "ALTER TABLE away RENAME TO ledger")
			forget(t, f.Brokers, f.group)
			consumer := f.run(t, dir, x.consume)
			f.awaitLedger(t, 2*orders, consumer)
			f.verify(t, orders)
			consumer.stop(t)
			relay.stop(t)
		})
	}
}

// exampleOf is the one with this name.
func exampleOf(name string) example {
	return examples[slices.IndexFunc(examples, func(x example) bool { return cmp.Or(x.name, x.folder) == name })]
}

// Some clients stop at the relay's default compression, with the errors that the page has, and read
// it with what the page gives.
func TestExamples_ClientsNeedACodecForTheDefaultCompression(t *testing.T) {
	for _, client := range []struct {
		name, example string
		without, with []string
		env           []string // of without
		message       string
	}{
		{"kafkajs", "typescript", []string{"node", "--import", "tsx", "kafkajs.ts"}, []string{"node", "--import", "tsx", "kafkajs.ts"}, []string{"WITHOUT_SNAPPY=1"}, "Snappy compression not implemented"},
		{
			"aiokafka", "python asyncio",
			[]string{".venv/bin/python", "-c", "import runpy, sys\nsys.modules['cramjam'] = None # as if it were not installed\nrunpy.run_path('consume_async.py', run_name='__main__')"},
			exampleOf("python asyncio").consume, nil, "UnsupportedCodecError: Libraries for snappy compression codec not found",
		},
	} {
		t.Run(client.name, func(t *testing.T) {
			t.Parallel()
			x := exampleOf(client.example)
			dir := x.ready(t)
			page, err := os.ReadFile("../../docs/consuming.md")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(page), client.message) {
				t.Errorf("the page does not have the error %q", client.message)
			}
			f := newShopFloor(t, "")
			const orders = 50
			writer := f.run(t, dir, append(x.write[:len(x.write):len(x.write)], fmt.Sprint(orders)))
			<-writer.done
			if writer.err != nil {
				t.Fatalf("%v\n%s", writer.err, writer.out.String())
			}
			relay := f.relay(t)
			without := f.run(t, dir, client.without, client.env...)
			select {
			case <-without.done:
			case <-time.After(relaytest.Patience):
				t.Fatalf("it goes on without the codec\n%s", without.out.String())
			}
			if !strings.Contains(without.out.String(), client.message) {
				t.Errorf("the page has another error than this one:\n%s", without.out.String())
			}
			forget(t, f.Brokers, f.group)
			with := f.run(t, dir, client.with)
			f.awaitLedger(t, 2*orders, with)
			f.verify(t, orders)
			relay.stop(t)
		})
	}
}
