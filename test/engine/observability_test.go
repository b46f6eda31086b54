//go:build engine

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// on is where a service of the stack answers on this machine.
func (p *project) on(variable string) string {
	for _, entry := range p.environment {
		if port, found := strings.CutPrefix(entry, variable+"="); found {
			return "http://127.0.0.1:" + port
		}
	}
	return ""
}

func get(ctx context.Context, address string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", address, response.Status, body)
	}
	return json.Unmarshal(body, into)
}

// dashboardQueries are what the panels of the dashboard ask for, with Grafana's variables filled in.
func dashboardQueries(t *testing.T) (queries []string) {
	t.Helper()
	text, err := os.ReadFile(root + "/deploy/observability/grafana/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries = append(queries, strings.NewReplacer("$pipeline", ".*", "$__rate_interval", "1m").Replace(target.Expr))
		}
	}
	if len(queries) < 40 {
		t.Fatalf("the dashboard has %d queries only", len(queries))
	}
	return queries
}

// Prometheus finds the relay by the profile's files, has the alert rules, and answers what the
// dashboard asks.
func TestCompose_PrometheusWatchesTheRelay(t *testing.T) {
	p := newProject(t)
	build(t)
	// Without Grafana, which has a test of its own.
	p.run(t, "docker compose --profile observability up --build --wait relay prometheus")
	prometheus := p.on("PROMETHEUS_PORT")
	p.run(t, `docker compose exec -T postgres psql -U postgres shop -c "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload)
		SELECT gen_random_uuid(), 'order', gen_random_uuid(), 'OrderPlaced', '{}' FROM generate_series(1, 200)"`)

	relaytest.Eventually(t, "Prometheus reads the relay's metrics", func() (bool, string) {
		var targets struct {
			Data struct {
				ActiveTargets []struct{ ScrapeURL, Health, LastError string }
			}
		}
		err := get(t.Context(), prometheus+"/api/v1/targets", &targets)
		active := targets.Data.ActiveTargets
		return err == nil && len(active) == 1 && active[0].Health == "up", fmt.Sprint(err, active)
	})
	relaytest.Eventually(t, "it has evaluated the alert rules", func() (bool, string) {
		var rules struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, Health, State, LastError string }
				}
			}
		}
		if err := get(t.Context(), prometheus+"/api/v1/rules", &rules); err != nil {
			return false, err.Error()
		}
		n := 0
		for _, group := range rules.Data.Groups {
			for _, rule := range group.Rules {
				n++
				if rule.Health != "ok" {
					return false, fmt.Sprint(rule)
				}
				if rule.State == "firing" {
					t.Fatalf("the alert %s is raised for a relay that is well", rule.Name)
				}
			}
		}
		return n > 10, fmt.Sprint(n, " rules")
	})

	var silent []string
	relaytest.Eventually(t, "the dashboard's queries are answered", func() (bool, string) {
		silent = silent[:0]
		for _, query := range dashboardQueries(t) {
			var answer struct {
				Data struct{ Result []json.RawMessage }
			}
			if err := get(t.Context(), prometheus+"/api/v1/query?query="+url.QueryEscape(query), &answer); err != nil {
				t.Fatal(err)
			}
			if len(answer.Data.Result) == 0 {
				silent = append(silent, query)
			}
		}
		unexpected := slices.DeleteFunc(slices.Clone(silent), nothingYet.MatchString)
		return len(unexpected) == 0, strings.Join(unexpected, "\n")
	})
	t.Logf("%d of %d queries of the dashboard have an answer; the others are about what did not happen", len(dashboardQueries(t))-len(silent), len(dashboardQueries(t)))
}

// nothingYet are queries about what a relay that is well has not had.
var nothingYet = regexp.MustCompile(`cdc_relay_(state_reason|reconnects_total|events_skipped_total|events_rejected_total|produce_retries_total|kafka_connect_errors_total|kafka_disconnects_total|slot_safe_wal_bytes|retention_[a-z_]+)\b`)

// Grafana has the dashboard, without a login.
func TestCompose_GrafanaHasTheDashboard(t *testing.T) {
	p := newProject(t)
	image := strings.TrimSpace(p.run(t, "docker compose --profile observability config --images | grep ^grafana/"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if _, err := try(ctx, "image", "inspect", image); err != nil {
		if _, err := try(ctx, "pull", "-q", image); err != nil {
			harness.Missing(t, "the image "+image, err, "use an engine that can pull it; engine.sh has no stand-in, so Grafana did NOT run")
		}
	}
	build(t)
	lines := commands(t, "compose.yaml")
	at := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "--profile observability") })
	if at < 0 {
		t.Fatalf("the header of compose.yaml has no line with the profile: %q", lines)
	}
	p.run(t, lines[at])
	relaytest.Eventually(t, "Grafana has the dashboard", func() (bool, string) {
		var found struct{ Dashboard struct{ Title string } }
		err := get(t.Context(), p.on("GRAFANA_PORT")+"/api/dashboards/uid/cdc-relay", &found)
		return err == nil && found.Dashboard.Title != "", fmt.Sprint(err)
	})
}
