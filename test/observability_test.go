package test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

type alertRule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alertRules(t *testing.T) []alertRule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string      `yaml:"name"`
			Rules []alertRule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.UnmarshalWithOptions([]byte(read(t, "deploy/observability/alerts.yml")), &file, yaml.Strict()); err != nil {
		t.Fatal(yaml.FormatError(err, false, true))
	}
	var rules []alertRule
	for _, group := range file.Groups {
		rules = append(rules, group.Rules...)
	}
	if len(rules) < 10 {
		t.Fatalf("found %d alert rules only", len(rules))
	}
	return rules
}

// tool finds a program on PATH or in .bin. Without it the test is skipped, and fails where
// everything is required: .ci/install brings the program.
func tool(t *testing.T, program, install string) string {
	t.Helper()
	if path, err := filepath.Abs(filepath.Join(root, ".bin", program)); err == nil {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	harness.Missing(t, program, err, install)
	return ""
}

// toolOutput runs a program in a folder of the repository.
func toolOutput(t *testing.T, folder, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = filepath.Join(root, folder)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

const installPromtool = "install the package prometheus, or put promtool into .bin"

func TestAlerts_AreValidAndFire(t *testing.T) {
	promtool := tool(t, "promtool", installPromtool)
	toolOutput(t, "deploy/observability", promtool, "check", "config", "prometheus.yml")
	toolOutput(t, "deploy/observability", promtool, "check", "rules", "alerts.yml")
	toolOutput(t, "deploy/observability", promtool, "test", "rules", "alerts_test.yml")
}

func TestAlerts_SayHowUrgentAndAreTested(t *testing.T) {
	tests := read(t, "deploy/observability/alerts_test.yml")
	for _, rule := range alertRules(t) {
		if severity := rule.Labels["severity"]; severity != "page" && severity != "warn" {
			t.Errorf("alert %s has severity %q", rule.Alert, severity)
		}
		if rule.Annotations["summary"] == "" {
			t.Errorf("alert %s has no summary", rule.Alert)
		}
		if strings.Count(tests, rule.Alert) < 2 {
			t.Errorf("alerts_test.yml does not show when %s fires and when it does not", rule.Alert)
		}
	}
}

// kafkaClient are metrics of the client's own plug-in, which come without a prefix
// in the documentation.
const kafkaClient = "cdc_relay_kafka_"

func documentedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	text := read(t, "docs/metrics.md")
	names := map[string]bool{}
	for _, m := range regexp.MustCompile("`(cdc_relay_[a-z_]+[a-z])`").FindAllStringSubmatch(text, -1) {
		names[m[1]] = true
	}
	for _, m := range regexp.MustCompile("`([a-z0-9_]+)`").FindAllStringSubmatch(section(t, text, "The Kafka client"), -1) {
		if m[1] != "node_id" && !strings.HasPrefix(m[1], "cdc_relay") {
			names[kafkaClient+m[1]] = true
		}
	}
	if len(names) < 40 {
		t.Fatalf("found %d documented metrics only", len(names))
	}
	return names
}

var metricName = regexp.MustCompile(`\bcdc_relay_[a-z0-9_]+`)

func TestMetrics_OfAlertsAndDashboardExist(t *testing.T) {
	documented := documentedMetrics(t)
	expressions := map[string]string{}
	for _, rule := range alertRules(t) {
		expressions["alert "+rule.Alert] = rule.Expr
	}
	maps.Copy(expressions, dashboardQueries(t))
	used := 0
	for _, where := range slices.Sorted(maps.Keys(expressions)) {
		for _, name := range metricName.FindAllString(expressions[where], -1) {
			used++
			if !documented[name] && !documented[strings.TrimSuffix(name, "_bucket")] {
				t.Errorf("%s asks for %s, which docs/metrics.md does not have", where, name)
			}
		}
	}
	if used < 60 {
		t.Errorf("found %d uses only", used)
	}
}

type panel struct {
	ID          int
	Type, Title string
	Datasource  struct{ UID string }
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct{ Expr string }
}

func dashboardPanels(t *testing.T) []panel {
	t.Helper()
	var dashboard struct {
		UID, Title string
		Panels     []panel
		Templating struct{ List []struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(read(t, "deploy/observability/grafana/dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	variables := map[string]bool{}
	for _, variable := range dashboard.Templating.List {
		variables[variable.Name] = true
	}
	if dashboard.UID != "cdc-relay" || !variables["datasource"] || !variables["pipeline"] {
		t.Errorf("dashboard %q with the variables %v", dashboard.UID, variables)
	}
	return dashboard.Panels
}

func dashboardQueries(t *testing.T) map[string]string {
	t.Helper()
	queries := map[string]string{}
	for _, p := range dashboardPanels(t) {
		for _, target := range p.Targets {
			queries["panel "+p.Title] += target.Expr + "\n"
		}
	}
	return queries
}

func TestDashboard_HasRowsOfPanelsThatAskForThePipeline(t *testing.T) {
	var rows []string
	taken := map[[2]int]string{}
	ids := map[int]bool{}
	for _, p := range dashboardPanels(t) {
		if ids[p.ID] {
			t.Errorf("panel %q shares its id %d", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("panel %q: data source %q, %d queries", p.Title, p.Datasource.UID, len(p.Targets))
		}
		for _, target := range p.Targets {
			if selectors := strings.Count(target.Expr, "{"); selectors == 0 || strings.Count(target.Expr, `pipeline=~"$pipeline"`) != selectors {
				t.Errorf("panel %q asks beyond its pipeline: %s", p.Title, target.Expr)
			}
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("panels %q and %q overlap", other, p.Title)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	if want := []string{"Now", "Throughput", "Latency", "Slot and WAL", "Kafka client and process", "Retention"}; !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
}

// The dashboard's queries are valid expressions, which only promtool can say.
func TestDashboard_QueriesParse(t *testing.T) {
	promtool := tool(t, "promtool", installPromtool)
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	n := 0
	for _, p := range dashboardPanels(t) {
		for _, target := range p.Targets {
			n++
			expression, err := json.Marshal(strings.NewReplacer("$__rate_interval", "1m", "$pipeline", ".*").Replace(target.Expr))
			if err != nil {
				t.Fatal(err)
			}
			rules.WriteString("      - {record: 'panel:" + strings.Repeat("x", n) + "', expr: " + string(expression) + "}\n")
		}
	}
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	toolOutput(t, ".", promtool, "check", "rules", file)
}
