package test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// shown is a command line of ours as a page shows it.
type shown struct {
	page string
	args []string
	run  bool // it stands in a block of commands, not within a sentence
}

func (s shown) String() string { return "cdc-relay " + strings.Join(s.args, " ") }

var (
	fence  = regexp.MustCompile("(?ms)^ *```([a-z]*)\n(.*?)^ *```$")
	inline = regexp.MustCompile("`cdc-relay ([^`\n]+)`")
	word   = regexp.MustCompile(`(?:[^\s"]|"[^"]*")+`)
)

func shownCommands(t *testing.T) []shown {
	t.Helper()
	var commands []shown
	for _, page := range documents(t) {
		text := read(t, page)
		for _, block := range fence.FindAllStringSubmatch(text, -1) {
			if !slices.Contains([]string{"", "console", "sh", "bash", "shell"}, block[1]) {
				continue
			}
			for line := range strings.Lines(block[2]) {
				line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
				line, _, _ = strings.Cut(line, " > ")
				for _, command := range strings.Split(strings.TrimPrefix(line, "$ "), "&&") {
					if args, ours := strings.CutPrefix(strings.TrimSpace(command), "cdc-relay "); ours {
						commands = append(commands, shown{page, shellWords(args), true})
					}
				}
			}
		}
		for _, span := range inline.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			for _, args := range alternatives(strings.Fields(span[1])) {
				commands = append(commands, shown{page, args, false})
			}
		}
	}
	return commands
}

// shellWords divides a line as a shell would: what stands in double quotes is part of one word.
func shellWords(line string) []string {
	all := word.FindAllString(line, -1)
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], `"`, "")
	}
	return all
}

// alternatives writes `config print|schema` out.
func alternatives(args []string) [][]string {
	for i, arg := range args {
		if !strings.Contains(arg, "|") {
			continue
		}
		var all [][]string
		for _, choice := range strings.Split(arg, "|") {
			all = append(all, alternatives(slices.Concat(args[:i], []string{choice}, args[i+1:]))...)
		}
		return all
	}
	return [][]string{args}
}

// verbsOf reads the commands that a help text lists.
func verbsOf(help string) []string {
	_, list, found := strings.Cut(help, "Available Commands:\n")
	if !found {
		return nil
	}
	list, _, _ = strings.Cut(list, "\n\n")
	var verbs []string
	for line := range strings.Lines(list) {
		verbs = append(verbs, strings.Fields(line)[0])
	}
	return verbs
}

func TestCommands_OfTheDocumentationWork(t *testing.T) {
	binary := relaytest.Binary(t)
	commands := shownCommands(t)
	t.Run("exist", func(t *testing.T) { commandsExist(t, binary, commands) })
	t.Run("run", func(t *testing.T) { commandsRun(t, binary, commands) })
	t.Run("examples", func(t *testing.T) { examplesAreValid(t, binary) })
}

func commandsExist(t *testing.T, binary string, commands []shown) {
	help := func(verbs ...string) string {
		out, err := exec.Command(binary, append(verbs, "--help")...).Output()
		if err != nil {
			t.Fatalf("%v --help: %v", verbs, err)
		}
		return string(out)
	}
	seen := map[string]string{}
	for _, command := range commands {
		var verbs []string
		text := help()
		for _, word := range command.args {
			if !slices.Contains(verbsOf(text), word) {
				break
			}
			verbs = append(verbs, word)
			key := strings.Join(verbs, " ")
			if seen[key] == "" {
				seen[key] = help(verbs...)
			}
			text = seen[key]
		}
		if len(verbs) == 0 {
			t.Errorf("%s shows %q: there is no such command", command.page, command)
			continue
		}
		for _, arg := range command.args {
			flag := regexp.MustCompile(`^--?[a-z-]+`).FindString(arg)
			if flag != "" && !regexp.MustCompile(`(?m)(^|[ ,])`+flag+`( |$|\[|,)`).MatchString(text) {
				t.Errorf("%s shows %q: there is no %s", command.page, command, flag)
			}
		}
	}
	if len(seen) < 6 {
		t.Errorf("the documentation shows %d commands only", len(seen))
	}
}

// commandsRun tells the story of the blocks: what ends by itself, then a relay
// and what is asked of it, then the end.
func commandsRun(t *testing.T, binary string, commands []shown) {
	db, brokers := harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{})
	place := workplace{binary: binary, dir: t.TempDir(), listen: freeAddress(t)}
	place.environ = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + place.dir,
		"CDC_RELAY_POSTGRES_URL=" + db.URL,
		"CDC_RELAY_POSTGRES_SLOT=" + harness.Unique(t, "docs"),
		"CDC_RELAY_KAFKA_BROKERS=" + strings.Join(brokers.Addrs, ","),
		"CDC_RELAY_KAFKA_CREATE_TOPICS_ENABLED=true",
		"CDC_RELAY_KAFKA_CREATE_TOPICS_PARTITIONS=1",
		"CDC_RELAY_OUTBOX_TABLE=public.outbox",
		"CDC_RELAY_RELAY_ON_REJECT=dead_letter", // so that setup makes the topic
		"CDC_RELAY_HTTP_LISTEN=" + place.listen,
	}
	place.fill(t)
	place.fillDebezium(t, db.URL)
	place.must(t, "setup", "--create-table")
	place.storePosition(t, db)
	db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', gen_random_uuid(), 'OrderPlaced', '{}')`)

	var toEnd, asked, last [][]string
	streams := false
	for _, command := range commands {
		switch verb := command.args[0]; {
		case !command.run:
		case verb == "run":
			streams = true
		case verb == "status" || verb == "healthcheck" || verb == "audit": // beside a relay
			asked = append(asked, command.args)
		case verb == "teardown":
			last = append(last, command.args)
		default:
			toEnd = append(toEnd, command.args)
		}
	}
	if !streams || len(toEnd) == 0 || len(asked) == 0 {
		t.Fatalf("the documentation shows run: %t, %d others, %d questions: the test reads the wrong blocks", streams, len(toEnd), len(asked))
	}
	db.Exec(t, "CREATE TABLE polled (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb, published_at timestamptz)")
	polled := harness.Unique(t, "polled")
	for _, args := range toEnd {
		for i, arg := range args {
			if strings.HasPrefix(arg, "postgres.url=") {
				args[i] = "postgres.url=" + db.URL
			}
		}
		if args[0] == "backfill" && !slices.Contains(args, "--late") { // for a slot that is not there
			args = append(args, "--set", "postgres.slot="+harness.Unique(t, "docs"))
		}
		if slices.Contains(args, "--online") { // the page asks for kept positions
			args = append(args, "--set", "relay.detect_moved_slot=true")
		}
		if args[0] == "cutover" { // for a table that has a publisher, and one slot for all commands
			args = append(args, "--set", "postgres.slot="+polled, "--set", "postgres.publication="+polled, "--set", "outbox.table=public.polled")
			if slices.Contains(args, "--stopped") { // its slot is its own
				args = append(args, "--set", "postgres.slot="+polled+"_stopped", "--set", "postgres.publication="+polled+"_stopped", "--accept-order", "--watch", "0s")
			} else if !slices.Contains(args, "--back") {
				args = append(args, "--settle", "0s", "--watch", "0s")
			}
		}
		place.must(t, args...)
	}
	stop := place.start(t)
	for _, args := range asked {
		if slices.Contains(args, "--watch") {
			place.watch(t, args)
			continue
		}
		place.must(t, args...)
	}
	db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', gen_random_uuid(), 'OrderPaid', '{}')`)
	checkPaths(t, place.listen)
	checkKafkaMetrics(t, place.listen)
	for _, statement := range slices.Concat(resendStatements(t), questions(t)) {
		db.Exec(t, statement)
	}
	stop()
	for _, args := range last {
		place.must(t, args...)
	}
	place.must(t, "teardown", "--yes")
}

// checkPaths asks for every path that docs/operations.md has.
func checkPaths(t *testing.T, listen string) {
	t.Helper()
	paths := regexp.MustCompile("`(/[a-z0-9/]+)`").FindAllStringSubmatch(section(t, read(t, "docs/operations.md"), "HTTP"), -1)
	if len(paths) < 6 {
		t.Errorf("docs/operations.md has %d paths only", len(paths))
	}
	for _, path := range paths {
		response, err := http.Get("http://" + listen + path[1])
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s answers %s while the relay streams", path[1], response.Status)
		}
	}
}

// resendStatements are those by which a person sends rows again.
func resendStatements(t *testing.T) []string {
	t.Helper()
	blocks := regexp.MustCompile("(?ms)^ *```sql\n(.*?)^ *```$").FindAllStringSubmatch(read(t, "docs/how-to/send-rows-again.md"), -1)
	if len(blocks) == 0 {
		t.Fatal("docs/how-to/send-rows-again.md does not show how rows are sent again")
	}
	var statements []string
	for _, block := range blocks {
		statements = append(statements, block[1])
	}
	return statements
}

// questions are the statements of docs/operations.md that only look.
func questions(t *testing.T) []string {
	t.Helper()
	var statements []string
	for _, m := range regexp.MustCompile("(?m)(?:^|`)((?:SELECT|SHOW) [^`]+?)(?:`|;$)").FindAllStringSubmatch(read(t, "docs/operations.md"), -1) {
		if !strings.Contains(m[1], "pg_replication_slot_advance") && !strings.Contains(m[1], "pg_reload_conf") {
			statements = append(statements, m[1])
		}
	}
	if len(statements) < 6 {
		t.Errorf("docs/operations.md has %d statements only", len(statements))
	}
	return statements
}

// freeAddress stays free until it is used.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// workplace is where commands are run.
type workplace struct {
	binary, dir, listen string
	environ             []string
}

// fill puts there what the pages suppose.
func (w workplace) fill(t *testing.T) {
	t.Helper()
	row := `{"id": "7f0c5d5e-0000-4000-8000-000000000001", "aggregate_type": "order", "aggregate_id": "0191", "event_type": "OrderPlaced", "payload": {"total": 12}}`
	if err := os.WriteFile(filepath.Join(w.dir, "row.json"), []byte(row), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(w.dir, "migrations"), 0o700); err != nil {
		t.Fatal(err)
	}
}

func (w workplace) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, w.binary, args...)
	cmd.Dir, cmd.Env = w.dir, w.environ
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	return cmd
}

func (w workplace) must(t *testing.T, args ...string) {
	t.Helper()
	out, err := w.command(t.Context(), args...).CombinedOutput()
	if slices.Contains(args, "--offset") { // the place of a letter in the documentation, which is not here
		if !bytes.Contains(out, []byte("no dead letter at partition")) {
			t.Errorf("cdc-relay %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return
	}
	if err != nil {
		t.Errorf("cdc-relay %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// start streams until the returned stop.
func (w workplace) start(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := w.command(ctx, "run")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop = sync.OnceFunc(func() {
		cancel()
		if <-ended; cmd.ProcessState.ExitCode() != 0 {
			t.Errorf("run: %v\n%s", cmd.ProcessState, &out)
		}
	})
	t.Cleanup(stop)
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for w.command(t.Context(), "healthcheck").Run() != nil {
		select {
		case <-deadline:
			stop()
			t.Fatalf("not ready\n%s", &out)
		case <-tick.C:
		}
	}
	return stop
}

// watch runs what goes on until stopped, up to its first word about streaming.
func (w workplace) watch(t *testing.T, args []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := w.command(ctx, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var text []byte
	buffer := make([]byte, 4096)
	for !bytes.Contains(text, []byte("streaming")) {
		n, err := out.Read(buffer)
		text = append(text, buffer[:n]...)
		if err != nil {
			t.Errorf("cdc-relay %s ended: %v\n%s", strings.Join(args, " "), err, text)
			break
		}
	}
	cancel()
	_ = cmd.Wait()
}

// checkKafkaMetrics holds the documented metrics of the Kafka client against what
// it really gives.
func checkKafkaMetrics(t *testing.T, listen string) {
	t.Helper()
	var missing []string
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		response, err := http.Get("http://" + listen + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		missing = missing[:0]
		for metric := range documentedMetrics(t) {
			if strings.HasPrefix(metric, kafkaClient) && !seldom[metric] && !bytes.Contains(text, []byte("# TYPE "+metric+" ")) {
				missing = append(missing, metric)
			}
		}
		if len(missing) == 0 {
			return
		}
		select {
		case <-deadline:
			slices.Sort(missing)
			t.Errorf("docs/metrics.md has %q, which a relay at work does not give", missing)
			return
		case <-tick.C:
		}
	}
}

// seldom are counters of faults, which appear with the first one.
var seldom = map[string]bool{
	kafkaClient + "connect_errors_total":      true,
	kafkaClient + "disconnects_total":         true,
	kafkaClient + "write_errors_total":        true,
	kafkaClient + "read_errors_total":         true,
	kafkaClient + "request_throttled_seconds": true,
}

// examplesAreValid has each configuration that a page shows checked as a user
// would.
func examplesAreValid(t *testing.T, binary string) {
	checked := 0
	for _, page := range documents(t) {
		for _, block := range fence.FindAllStringSubmatch(read(t, page), -1) {
			text := block[2]
			if block[1] != "yaml" || !regexp.MustCompile(`(?m)^(postgres|outbox|kafka|relay|maintenance|http|log):`).MatchString(text) || regexp.MustCompile(`(?m)^config:`).MatchString(text) {
				continue
			}
			checked++
			dir := t.TempDir()
			// Files that the page supposes.
			for _, path := range regexp.MustCompile(`_file: ([^\s,}]+)`).FindAllStringSubmatch(text, -1) {
				file := filepath.Join(dir, filepath.Base(path[1]))
				if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				text = strings.ReplaceAll(text, "_file: "+path[1], "_file: "+file)
			}
			for _, name := range regexp.MustCompile(`\bfile: ([\w-]+\.avsc)`).FindAllStringSubmatch(text, -1) {
				if err := os.WriteFile(filepath.Join(dir, name[1]), []byte(`{"type": "record", "name": "Order", "fields": []}`), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			text = regexp.MustCompile(`&?sslrootcert=[^\s&"]+`).ReplaceAllString(text, "")
			if err := os.WriteFile(filepath.Join(dir, "cdc-relay.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(binary, "config", "validate")
			cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
			for key, variable := range map[string]string{ // what the page leaves out
				`url: `:     "CDC_RELAY_POSTGRES_URL=postgres://relay@localhost/shop",
				`brokers: `: "CDC_RELAY_KAFKA_BROKERS=localhost:9092",
				`outbox:`:   "CDC_RELAY_OUTBOX_TABLE=public.outbox",
			} {
				if !strings.Contains(text, key) {
					cmd.Env = append(cmd.Env, variable)
				}
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s\n%s", page, err, out, text)
			}
		}
	}
	if checked < 2 {
		t.Errorf("found %d examples only", checked)
	}
}
