package test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/cdc-relay/cdc-relay/config"
)

const unit = "deploy/systemd/cdc-relay.service"

// settingsOf reads a unit file: key to the values of its lines.
func settingsOf(text string) map[string][]string {
	settings := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^([A-Z]\w+)=(.*)$`).FindAllStringSubmatch(text, -1) {
		settings[m[1]] = append(settings[m[1]], m[2])
	}
	return settings
}

// drainTimeout is the default of relay.drain_timeout, which supervisors have to
// outwait.
func drainTimeout(t *testing.T) time.Duration {
	t.Helper()
	cfg, err := config.Load(config.Options{
		Environ:  []string{"CDC_RELAY_POSTGRES_URL=postgres://localhost/shop", "CDC_RELAY_KAFKA_BROKERS=localhost:9092", "CDC_RELAY_OUTBOX_TABLE=public.outbox"},
		ReadFile: func(string) ([]byte, error) { return nil, fs.ErrNotExist },
	})
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Relay().DrainTimeout
}

func TestStop_EverySupervisorWaitsLongerThanTheDrain(t *testing.T) {
	drain := drainTimeout(t)
	if drain <= 0 {
		t.Fatalf("the drain takes %s", drain)
	}
	compose := decode(t, read(t, "compose.yaml"))
	for place, text := range map[string]string{
		unit:                   settingsOf(read(t, unit))["TimeoutStopSec"][0] + "s",
		"compose.yaml":         at(t, compose, "services", "relay", "stop_grace_period").(string),
		chart + "/values.yaml": strconv.Itoa(at(t, decode(t, read(t, chart+"/values.yaml")), "terminationGracePeriodSeconds").(int)) + "s",
	} {
		grace, err := time.ParseDuration(text)
		const closing = 10 * time.Second // brokers and a server that do not answer
		if err != nil || grace < drain+closing {
			t.Errorf("%s gives a stop %s (%v), the drain may take %s, and closing another %s", place, text, err, drain, closing)
		}
	}
}

func TestUnit_FollowsTheExitCodes(t *testing.T) {
	settings := settingsOf(read(t, unit))
	for key, want := range map[string]string{
		"Type":                     "notify",
		"Restart":                  "on-failure",
		"LimitCORE":                "0",
		"RestartPreventExitStatus": "2 3 4",
		"DynamicUser":              "yes",
		"ProtectSystem":            "strict",
		"NoNewPrivileges":          "yes",
		"WatchdogSec":              "60",
		"ExecStart":                "/usr/bin/cdc-relay run --config ${CREDENTIALS_DIRECTORY}/config.yaml",
	} {
		if !slices.Contains(settings[key], want) {
			t.Errorf("%s=%s, want %s", key, settings[key], want)
		}
	}
}

// A supervisor starts again what the table of exit codes has it start again, and no other.
func TestCrash_EverySupervisorRestarts(t *testing.T) {
	settings := settingsOf(read(t, unit))
	stays := strings.Fields(strings.Join(settings["RestartPreventExitStatus"], " "))
	rows := regexp.MustCompile(`(?m)^\| (\d|SIG[^|]*) \| [^|]*\| ([^|]*) \|$`).FindAllStringSubmatch(read(t, "docs/operations.md"), -1)
	if len(rows) != 7 {
		t.Fatalf("docs/operations.md has %d rows of exit codes, want 0 to 4, a crash and a closed pipe", len(rows))
	}
	for _, row := range rows {
		code, person := row[1], strings.HasPrefix(row[2], "do not restart") || strings.HasPrefix(row[2], "page a person")
		if person != slices.Contains(stays, code) {
			t.Errorf("code %s: the page has the supervisor %q, the unit does not restart %s", code, row[2], stays)
		}
		if strings.HasPrefix(code, "SIG") && !strings.HasPrefix(row[2], "restart") {
			t.Errorf("after %s the page has the supervisor %q", code, row[2])
		}
	}
	for _, code := range stays {
		if _, err := strconv.Atoi(code); err != nil {
			t.Errorf("the unit does not restart after %s", code)
		}
	}
	for key, want := range map[string]string{"Restart": "on-failure", "RestartForceExitStatus": "SIGPIPE", "StartLimitIntervalSec": "0"} {
		if got := strings.Join(settings[key], " "); got != want {
			t.Errorf("the unit has %s=%s, want %s", key, got, want)
		}
	}
	if others := settings["WatchdogSignal"]; len(others) > 0 {
		t.Errorf("the watchdog sends %s, and not SIGABRT, which prints the stacks", others)
	}
	// A crash of a container's first process is code 2.
	if got := at(t, decode(t, read(t, "compose.yaml")), "services", "relay", "restart"); got != "on-failure" {
		t.Errorf("compose.yaml has restart: %v", got)
	}
	if deployment := read(t, chart+"/templates/deployment.yaml"); strings.Contains(deployment, "restartPolicy") {
		t.Error("the chart's deployment has a restart policy, and needs the default, Always")
	}
}

func TestUnit_SystemdUnderstandsIt(t *testing.T) {
	analyze := tool(t, "systemd-analyze", "install the package systemd")
	text := strings.ReplaceAll(read(t, unit), "/usr/bin/cdc-relay", "/bin/true") // which need not be installed here
	file := filepath.Join(t.TempDir(), "cdc-relay.service")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := toolOutput(t, ".", analyze, "verify", file); strings.TrimSpace(out) != "" {
		t.Errorf("systemd-analyze verify says\n%s", out)
	}
	// 0 is the safest, 100 the least; below 20 means that nothing is left open by mistake.
	if out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=20", file).CombinedOutput(); err != nil && !strings.Contains(string(out), "unrecognized option") {
		t.Errorf("%v\n%s", err, out)
	}
}

type packaged struct {
	Recommends []string          `yaml:"recommends"`
	Contents   []map[string]any  `yaml:"contents"`
	Scripts    map[string]string `yaml:"scripts"`
}

func packages(t *testing.T) (p packaged) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, "deploy/nfpm.yaml")), &p); err != nil {
		t.Fatal(yaml.FormatError(err, false, true))
	}
	return p
}

func TestPackages_BringWhatTheUnitNeeds(t *testing.T) {
	single := packages(t)
	withoutBinary := slices.DeleteFunc(slices.Clone(single.Contents), func(file map[string]any) bool { return file["dst"] == "/usr/bin/cdc-relay" })
	if len(withoutBinary) != len(single.Contents)-1 {
		t.Error("deploy/nfpm.yaml does not install /usr/bin/cdc-relay, which the unit starts")
	}
	single.Contents = withoutBinary
	sources := []string{}
	for _, file := range single.Contents {
		sources = append(sources, file["src"].(string))
		if file["dst"] == "/etc/cdc-relay/config.yaml" && file["type"] != "config|noreplace" {
			t.Error("an upgrade would replace the configuration")
		}
	}
	for _, script := range single.Scripts {
		sources = append(sources, script)
	}
	for _, source := range sources {
		if _, err := os.Stat(filepath.Join(root, source)); err != nil {
			t.Errorf("packages need %s: %v", source, err)
		}
	}
	if !slices.Contains(sources, unit) {
		t.Errorf("the packages %q lack %s", sources, unit)
	}
}

func TestCompose_MountsFilesThatExist(t *testing.T) {
	compose := decode(t, read(t, "compose.yaml"))
	mounted := 0
	for name, service := range at(t, compose, "services").(object) {
		volumes, _ := service.(object)["volumes"].([]any)
		for _, volume := range volumes {
			source, _, _ := strings.Cut(volume.(string), ":")
			if !strings.HasPrefix(source, ".") {
				if at(t, compose, "volumes").(object)[source] == nil && !regexp.MustCompile(`(?m)^  `+source+`:$`).MatchString(read(t, "compose.yaml")) {
					t.Errorf("service %s mounts the volume %s, which is not declared", name, source)
				}
				continue
			}
			mounted++
			if _, err := os.Stat(filepath.Join(root, source)); err != nil {
				t.Errorf("service %s mounts %s: %v", name, source, err)
			}
		}
	}
	if mounted < 4 {
		t.Errorf("found %d mounted files only", mounted)
	}
	for _, name := range []string{"prometheus", "grafana"} {
		if at(t, compose, "services", name, "profiles", 0) != "observability" {
			t.Errorf("%s starts without being asked for", name)
		}
	}
}

// The names by which compose, Prometheus and Grafana know each other.
func TestCompose_ServicesFindEachOther(t *testing.T) {
	services := at(t, decode(t, read(t, "compose.yaml")), "services").(object)
	scraped := at(t, decode(t, read(t, "deploy/observability/prometheus.yml")), "scrape_configs", 0, "static_configs", 0, "targets", 0).(string)
	source := at(t, decode(t, read(t, "deploy/observability/grafana/provisioning/datasources/prometheus.yaml")), "datasources", 0, "url").(string)
	for _, address := range []string{scraped, strings.TrimPrefix(source, "http://")} {
		host, port, _ := strings.Cut(address, ":")
		if services[host] == nil {
			t.Errorf("%s: compose.yaml has no service %s", address, host)
			continue
		}
		if published := at(t, services, host, "ports", 0).(string); !strings.HasSuffix(published, ":"+port) {
			t.Errorf("%s: the service publishes %s", address, published)
		}
		if !strings.HasPrefix(at(t, services, host, "ports", 0).(string), "127.0.0.1:") {
			t.Errorf("the service %s is published beyond this host", host)
		}
	}
	folder := at(t, decode(t, read(t, "deploy/observability/grafana/provisioning/dashboards/cdc-relay.yaml")), "providers", 0, "options", "path").(string)
	if !strings.Contains(read(t, "compose.yaml"), ":"+folder+"/cdc-relay.json:ro") {
		t.Errorf("Grafana looks for dashboards in %s, where compose.yaml mounts none", folder)
	}
}

func TestDockerfile_FitsTheBinary(t *testing.T) {
	dockerfile := read(t, "Dockerfile")
	for _, want := range []string{
		"FROM scratch\n", "USER 65532:65532\n", "STOPSIGNAL SIGTERM\n", `CMD ["/cdc-relay", "healthcheck"]`,
		`ENTRYPOINT ["/cdc-relay"]`, `CMD ["run"]`, "CGO_ENABLED=0",
	} {
		if !strings.Contains(dockerfile, want) {
			t.Errorf("no %q", want)
		}
	}
	if m := regexp.MustCompile(`golang:([0-9.]+)`).FindStringSubmatch(dockerfile); m == nil || !strings.Contains(read(t, "go.mod"), "\ngo "+m[1]) {
		t.Errorf("the image builds with %v, go.mod asks for another version", m)
	}
}

// What a workflow calls has to be there.
func TestWorkflows_CallWhatExists(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%q, %v", files, err)
	}
	makefile, calls := read(t, "Makefile"), 0
	for _, file := range files {
		text := read(t, ".github/workflows/"+filepath.Base(file))
		if at(t, decode(t, text), "permissions", "contents") != "read" {
			t.Errorf("%s gives every job more than reading", file)
		}
		for _, m := range regexp.MustCompile(`(?m)\bmake ([a-z-]+)`).FindAllStringSubmatch(text, -1) {
			calls++
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s calls make %s, which does not exist", file, m[1])
			}
		}
		for _, path := range regexp.MustCompile(`(?:^|[ "])(\.ci/\w+|deploy/[\w./-]+)`).FindAllStringSubmatch(text, -1) {
			calls++
			if _, err := os.Stat(filepath.Join(root, path[1])); err != nil {
				t.Errorf("%s names %s: %v", file, path[1], err)
			}
		}
	}
	if calls < 5 {
		t.Errorf("found %d calls only", calls)
	}
	if actionlint, err := exec.LookPath("actionlint"); err == nil {
		toolOutput(t, ".", actionlint, workflowPaths(files)...)
	}
}

func workflowPaths(files []string) []string {
	relative := make([]string, len(files))
	for i, file := range files {
		relative[i] = ".github/workflows/" + filepath.Base(file)
	}
	return relative
}

func TestRelease_SetsVariablesThatExist(t *testing.T) {
	script := read(t, "deploy/release/release.sh")
	main := read(t, "cmd/cdc-relay/version.go")
	set := regexp.MustCompile(`-X main\.(\w+)=`).FindAllStringSubmatch(script, -1)
	if len(set) != 3 {
		t.Errorf("the linker sets %q", set)
	}
	for _, variable := range set {
		if !regexp.MustCompile(`(?m)^var .*\b` + variable[1] + `\b`).MatchString(main) {
			t.Errorf("the linker sets main.%s, which does not exist", variable[1])
		}
	}
	for _, path := range regexp.MustCompile(`(?m)(?:^| |\./)((?:deploy|docs)(?:/[\w.-]+)+)\b`).FindAllStringSubmatch(script, -1) {
		if _, err := os.Stat(filepath.Join(root, path[1])); err != nil {
			t.Errorf("the release needs %s: %v", path[1], err)
		}
	}
	if !strings.Contains(script, "s|src: .bin/cdc-relay|") || !strings.Contains(read(t, "deploy/nfpm.yaml"), "src: .bin/cdc-relay\n") {
		t.Error("the packages would have another program than the archives")
	}
}

// The dev container has the Go of the module, and what CI installs.
func TestDevContainer_HasWhatCIHas(t *testing.T) {
	var container struct{ Image, OnCreateCommand string }
	if err := json.Unmarshal([]byte(read(t, ".devcontainer/devcontainer.json")), &container); err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))
	if version == nil || !strings.HasPrefix(container.Image, "golang:"+version[1]+"-") {
		t.Errorf("the image is %s, go.mod has %q", container.Image, version)
	}
	if !strings.HasSuffix(container.OnCreateCommand, " && .ci/install") {
		t.Errorf("it does not run .ci/install: %s", container.OnCreateCommand)
	}
}
