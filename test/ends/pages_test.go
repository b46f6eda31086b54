package ends

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// shellOf is the commands that a page has to be typed, of which the last one does not end.
func shellOf(t *testing.T, page string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```bash\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 1 {
		t.Fatalf("%s has %d blocks of commands, not one", page, len(blocks))
	}
	for line := range strings.Lines(blocks[0][1]) {
		all = append(all, strings.TrimSpace(line))
	}
	return all
}

// page is the commands of the example's page.
func (x example) page(t *testing.T) []string {
	t.Helper()
	return shellOf(t, filepath.Join("..", "..", "examples", x.folder, "README.md"))
}

// typed runs commands in one shell, in a folder. What they start ends with it.
func typed(t *testing.T, dir string, env, commands []string) *process {
	t.Helper()
	last := len(commands) - 1
	script := strings.Join(commands[:last], "\n") + "\nexec " + commands[last]
	p := &process{cmd: exec.CommandContext(t.Context(), "bash", "-e", "-c", script), done: make(chan struct{})} //nolint:gosec // of the project's pages
	p.cmd.Dir, p.cmd.Env = dir, env
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Cancel = func() error { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }
	p.cmd.WaitDelay = time.Second
	p.start(t)
	return p
}

// end asks all that was typed to end, as a terminal does when it is closed.
func (p *process) end(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(relaytest.Patience):
		t.Errorf("it does not end\n%s", p.out.String())
	}
}

// The pages of examples/ are followed from the first command to the last, on servers of their own:
// what they make has the names that the pages have. What a page installs first, ready has installed by its line.
func TestExamples_PagesAreFollowedWordByWord(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("psql"); err != nil {
		harness.Missing(t, "psql", err, "install PostgreSQL's client")
	}
	dirs := map[string]string{}
	for _, x := range examples {
		dirs[x.folder] = x.ready(t)
	}
	db, brokers := harness.OwnPostgres(t, sandbox.PostgresOptions{}), harness.OwnKafka(t, nil)
	here := strings.NewReplacer("postgres://postgres@localhost:5432/shop", db.URL, "localhost:9092", strings.Join(brokers.Addrs, ","))
	env := append(os.Environ(), "PATH="+filepath.Dir(relayProgram(t))+":"+os.Getenv("PATH"), "CDC_RELAY_HTTP_LISTEN=") // others of this machine may have the port
	root := filepath.Join("..", "..", "examples")
	commands := shellOf(t, filepath.Join(root, "README.md"))
	for i := range commands {
		commands[i] = here.Replace(commands[i])
	}
	relay := typed(t, root, env, commands)
	awaits := func(what string, p *process, holds func() bool) {
		t.Helper()
		relaytest.Eventually(t, what, func() (bool, string) {
			select {
			case <-p.done:
				t.Fatalf("%s: it ended: %v\n%s", what, p.err, p.out.String())
			default:
			}
			return holds(), p.out.String()
		})
	}
	awaits("the relay streams", relay, func() bool { return strings.Contains(relay.out.String(), `"state":"streaming"`) })
	booked := 0
	for _, x := range examples {
		if x.name != "" {
			continue // another one of the same page
		}
		lines := x.page(t)
		if x.installs {
			lines = lines[1:]
		}
		written := typed(t, dirs[x.folder], env, append(commands[:1:1], lines...))
		booked += 200 // two of each of the orders that each page writes
		awaits(fmt.Sprint(x.folder, ": the ledger has ", booked, " lines"), written, func() bool {
			return harness.Query[int](t, db, "SELECT count(*)::int FROM ledger") == booked
		})
		written.end(t)
		forget(t, brokers, "billing") // who did not leave
		if out := written.out.String(); strings.Contains(out, "SLF4J") {
			t.Errorf("%s: %s", x.folder, out)
		}
	}
	(&shopFloor{Pipeline: &relaytest.Pipeline{DB: db}}).verify(t, booked/2)
	relay.end(t)
}
