package test

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/cdc-relay/cdc-relay/config"
)

var update = flag.Bool("update", false, "copy alert rules and dashboard into the chart; drop old words that the source no longer has")

const chart = "deploy/helm/cdc-relay"

type object = map[string]any

// decode reads YAML into the types of a JSON decoder, whole numbers as int.
func decode(t *testing.T, text string) object {
	t.Helper()
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%s\n%s", yaml.FormatError(err, false, true), text)
	}
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var o object
	if err := json.Unmarshal(data, &o); err != nil {
		t.Fatal(err)
	}
	return whole(o).(object)
}

func whole(value any) any {
	switch value := value.(type) {
	case object:
		for key, below := range value {
			value[key] = whole(below)
		}
	case []any:
		for i, below := range value {
			value[i] = whole(below)
		}
	case float64:
		if n := int(value); float64(n) == value {
			return n
		}
	}
	return value
}

// merge puts values over defaults as helm does: maps are merged, the rest replaced.
func merge(defaults, values object) object {
	merged := maps.Clone(defaults)
	for key, value := range values {
		below, isMap := value.(object)
		under, wasMap := merged[key].(object)
		if isMap && wasMap {
			value = merge(under, below)
		}
		merged[key] = value
	}
	return merged
}

func chartSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join(root, chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// minimal and full are values as people give them.
const (
	minimal = `
config:
  postgres: {url: "postgres://relay@db:5432/shop?sslmode=verify-full"}
  outbox: [{table: public.outbox}]
  kafka: {brokers: ["b1:9092"]}
`
	full = `
config:
  postgres: {url: "postgres://relay@db:5432/shop?sslmode=verify-full"}
  outbox: [{table: public.outbox, retention: {then: delete, keep: 7d}}]
  relay: {detect_moved_slot: true}
  maintenance: {url: "postgres://janitor@db:5432/shop"}
  kafka:
    brokers: ["b1:9092"]
    tls: {enabled: true}
    sasl: {mechanism: scram-sha-512, username: relay}
    create_topics: {enabled: true, partitions: 6}
  http: {listen: "0.0.0.0:9999"}
postgres: {existingSecret: {name: pg}}
kafka: {existingSecret: {name: sasl, key: pw}, existingTLSSecret: ca}
http: {existingSecret: {name: token}}
maintenance: {existingSecret: {name: janitor}, cronJob: {enabled: true}}
setup: {enabled: true, args: [--create-table], postgresURL: "postgres://owner@db/shop", existingSecret: {name: owner}}
image: {digest: "sha256:0123456789012345678901234567890123456789012345678901234567890123"}
imagePullSecrets: [{name: pull}]
replicas: 3
serviceAccount: {annotations: {role: relay}}
podAnnotations: {a: b}
podLabels: {c: d}
nodeSelector: {disk: ssd}
tolerations: [{operator: Exists}]
affinity: {nodeAffinity: {}}
priorityClassName: high
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
extraEnv: [{name: TZ, value: UTC}]
extraEnvFrom: [{secretRef: {name: more}}]
extraVolumes: [{name: extra, emptyDir: {}}]
extraVolumeMounts: [{name: extra, mountPath: /extra}]
service: {annotations: {e: f}}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
dashboard: {enabled: true, annotations: {folder: relay}}
networkPolicy: {enabled: true, from: [{podSelector: {}}]}
`
)

func TestChart_ValuesFitTheirSchema(t *testing.T) {
	schema, defaults := chartSchema(t), decode(t, read(t, chart+"/values.yaml"))
	for _, values := range []string{"{}", minimal, full} {
		if err := schema.Validate(merge(defaults, decode(t, values))); err != nil {
			t.Errorf("%v\n%s", err, values)
		}
	}
	for _, mistake := range []string{
		"replica: 2",
		"replicas: two",
		"setup: {enable: true}",
		"image: {digest: latest}",
		"postgres: {existingSecret: pg}",
		"postgres: {password: x}",
		"config: {postgres: {password: x}}",
		"config: {postgress: {slot: x}}",
		"config: {outbox: [{tabel: public.outbox}]}",
		"config: {relay: {on_reject: nonsense}}",
		"config: {kafka: {linger: soon}}",
		"config: {postgres: {url: 'postgres://relay@db/shop?sslpassword=x'}}",
		"config: {kafka: {sasl: {password: x}}}",
		"config: {kafka: {oauth: {client_secret: x}}}",
		"config: {http: {token: x}}",
		`config: {http: {listen: ""}}`,
		"config: {http: {listen: '127.0.0.1:8080'}}",
		"maintenance: {cronJob: {schedule: ''}}",
		"service: {port: 0}",
		"serviceMonitor: {interval: 15}",
	} {
		if schema.Validate(merge(defaults, decode(t, mistake))) == nil {
			t.Errorf("the schema takes %q", mistake)
		}
	}
}

// The first half of what config has to be is the program's own schema. It names
// no draft, since it is part of another document.
func TestChart_SchemaHasThatOfTheConfiguration(t *testing.T) {
	text := read(t, chart+"/values.schema.json")
	_, rest, found := strings.Cut(text, `"allOf": [`)
	if !found {
		t.Fatal("values.schema.json has no allOf")
	}
	decoder := json.NewDecoder(strings.NewReader(rest))
	var first json.RawMessage
	if err := decoder.Decode(&first); err != nil {
		t.Fatal(err)
	}
	schema := regexp.MustCompile(`(?m)^  "\$schema": .*\n`).ReplaceAll(config.Schema(), nil)
	var want bytes.Buffer
	if err := json.Indent(&want, schema, strings.Repeat(" ", 10), "  "); err != nil {
		t.Fatal(err)
	}
	if want.String() == strings.TrimSpace(string(first)) {
		return
	}
	if !*update {
		t.Fatal("config in values.schema.json is not `cdc-relay config schema`: run go test ./test -run TestChart -update")
	}
	before := strings.TrimSuffix(text, rest)
	text = before + "\n" + strings.Repeat(" ", 10) + want.String() + rest[decoder.InputOffset():]
	if err := os.WriteFile(filepath.Join(root, chart, "values.schema.json"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestChart_SchemaAndValuesHaveTheSameKeys(t *testing.T) {
	var schema struct{ Properties map[string]*schemaNode }
	if err := json.Unmarshal([]byte(read(t, chart+"/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	delete(schema.Properties, "config") // the relay's own
	delete(schema.Properties, "global") // given by parent charts only
	values := decode(t, read(t, chart+"/values.yaml"))
	delete(values, "config")
	sameKeys(t, "", schema.Properties, values)
}

type schemaNode struct{ Properties map[string]*schemaNode }

func sameKeys(t *testing.T, path string, schema map[string]*schemaNode, values object) {
	t.Helper()
	for key, node := range schema {
		value, ok := values[key]
		if !ok {
			t.Errorf("values.yaml has no %s%s", path, key)
		} else if below, ok := value.(object); ok && node.Properties != nil {
			sameKeys(t, path+key+".", node.Properties, below)
		}
	}
	for key := range values {
		if schema[key] == nil {
			t.Errorf("values.schema.json has no %s%s", path, key)
		}
	}
}

// A chart cannot reach files outside of itself, so it has copies.
func TestChart_HasTheAlertsAndTheDashboard(t *testing.T) {
	for original, copied := range map[string]string{
		"deploy/observability/alerts.yml":             chart + "/files/alerts.yml",
		"deploy/observability/grafana/dashboard.json": chart + "/files/dashboard.json",
	} {
		text := read(t, original)
		if *update {
			if err := os.WriteFile(filepath.Join(root, copied), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if read(t, copied) != text {
			t.Errorf("%s differs from %s: run go test ./test -update", copied, original)
		}
	}
}

// renderChart does what `helm template` does, with the functions that this chart
// uses. TestChart_HelmRendersTheSame holds it against the real one.
func renderChart(t *testing.T, values string) []object {
	t.Helper()
	objects, err := tryChart(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func tryChart(t *testing.T, values string) ([]object, error) {
	t.Helper()
	meta := decode(t, read(t, chart+"/Chart.yaml"))
	data := object{
		"Values":  merge(decode(t, read(t, chart+"/values.yaml")), decode(t, values)),
		"Chart":   object{"Name": meta["name"], "Version": meta["version"], "AppVersion": meta["appVersion"]},
		"Release": object{"Name": "orders", "Namespace": "shop", "Service": "Helm"},
		"Files":   chartFiles{t},
	}
	set := template.New("chart")
	set.Funcs(chartFunctions(set)).Option("missingkey=zero")
	files, err := filepath.Glob(filepath.Join(root, chart, "templates", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		template.Must(set.New(filepath.Base(file)).Parse(string(text)))
	}
	var objects []object
	for _, file := range files {
		var out bytes.Buffer
		if err := set.ExecuteTemplate(&out, filepath.Base(file), data); err != nil {
			return nil, err
		}
		if strings.HasSuffix(file, ".yaml") {
			objects = append(objects, documentsOf(t, out.String())...)
		}
	}
	return objects, nil
}

func documentsOf(t *testing.T, text string) []object {
	t.Helper()
	var objects []object
	for _, document := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
		if strings.TrimSpace(regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(document, "")) != "" {
			objects = append(objects, decode(t, document))
		}
	}
	return objects
}

type chartFiles struct{ t *testing.T }

func (f chartFiles) Get(path string) string { return read(f.t, chart+"/"+path) }

func chartFunctions(set *template.Template) template.FuncMap {
	indent := func(n int, text string) string {
		margin := strings.Repeat(" ", n)
		return margin + strings.ReplaceAll(text, "\n", "\n"+margin)
	}
	return template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var out bytes.Buffer
			err := set.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"toYaml": func(value any) (string, error) {
			text, err := yaml.Marshal(value)
			return strings.TrimSuffix(string(text), "\n"), err
		},
		"nindent": func(n int, text string) string { return "\n" + indent(n, text) },
		"default": func(otherwise, value any) any {
			if value == nil || reflect.ValueOf(value).IsZero() {
				return otherwise
			}
			return value
		},
		"contains": func(part, text string) bool { return strings.Contains(text, part) },
		"fail":     func(text string) (string, error) { return "", errors.New(text) },
		"dict": func(pairs ...any) object {
			o := object{}
			for i := 0; i < len(pairs); i += 2 {
				o[pairs[i].(string)] = pairs[i+1]
			}
			return o
		},
		"hasKey":  func(o object, key string) bool { _, has := o[key]; return has },
		"get":     func(o object, key string) any { return o[key] },
		"float64": func(n int) float64 { return float64(n) },
		"addf":    func(a, b float64) float64 { return a + b },
		"mulf": func(text string, by float64) (float64, error) {
			n, err := strconv.ParseFloat(text, 64)
			return n * by, err
		},
		"ceil": math.Ceil,
		"int": func(value any) (int, error) {
			if value == "" {
				return 0, nil
			}
			return strconv.Atoi(fmt.Sprint(value))
		},
		"quote":     func(value any) string { return strconv.Quote(fmt.Sprint(value)) },
		"regexFind": func(expression, text string) string { return regexp.MustCompile(expression).FindString(text) },
		"regexFindAll": func(expression, text string, n int) []string {
			return regexp.MustCompile(expression).FindAllString(text, n)
		},
		"replace":    func(from, to, text string) string { return strings.ReplaceAll(text, from, to) },
		"sha256sum":  func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) },
		"trim":       strings.TrimSpace,
		"trimSuffix": func(suffix, text string) string { return strings.TrimSuffix(text, suffix) },
		"trunc":      func(n int, text string) string { return text[:min(n, len(text))] },
	}
}

// at walks into maps by key and into lists by index.
func at(t *testing.T, value any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			value = value.(object)[step]
		case int:
			list, ok := value.([]any)
			if !ok || step >= len(list) {
				t.Fatalf("no element %d in %v", step, value)
			}
			value = list[step]
		}
		if value == nil {
			t.Fatalf("nothing at %v", path)
		}
	}
	return value
}

func kind(t *testing.T, objects []object, kind, name string) object {
	t.Helper()
	for _, o := range objects {
		if o["kind"] == kind && at(t, o, "metadata", "name") == name {
			return o
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

func TestChart_DeploymentIsOneAndAStandby(t *testing.T) {
	objects := renderChart(t, minimal)
	var kinds []string
	for _, o := range objects {
		kinds = append(kinds, o["kind"].(string))
	}
	slices.Sort(kinds)
	if want := []string{"ConfigMap", "Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"}; !slices.Equal(kinds, want) {
		t.Errorf("minimal values make %q, want %q", kinds, want)
	}
	deployment := kind(t, objects, "Deployment", "orders-cdc-relay")
	pod := at(t, deployment, "spec", "template", "spec")
	container := at(t, pod, "containers", 0)
	for want, got := range map[string]any{
		"2 replicas":             at(t, deployment, "spec", "replicas"),
		"0 unavailable":          at(t, deployment, "spec", "strategy", "rollingUpdate", "maxUnavailable"),
		"60 s to stop":           at(t, pod, "terminationGracePeriodSeconds"),
		"/livez at start":        at(t, container, "startupProbe", "httpGet", "path"),
		"/livez":                 at(t, container, "livenessProbe", "httpGet", "path"),
		"/readyz":                at(t, container, "readinessProbe", "httpGet", "path"),
		"8080 is the port":       at(t, container, "ports", 0, "containerPort"),
		"true: not root":         at(t, pod, "securityContext", "runAsNonRoot"),
		"RuntimeDefault":         at(t, pod, "securityContext", "seccompProfile", "type"),
		"false: escalation":      at(t, container, "securityContext", "allowPrivilegeEscalation"),
		"true: read-only":        at(t, container, "securityContext", "readOnlyRootFilesystem"),
		"ALL dropped":            at(t, container, "securityContext", "capabilities", "drop", 0),
		"false: token":           at(t, pod, "automountServiceAccountToken"),
		"false: links":           at(t, pod, "enableServiceLinks"),
		"run":                    at(t, container, "args", 0),
		"256Mi":                  at(t, container, "resources", "limits", "memory"),
		"ghcr.io/cdc-relay/cdc-": at(t, container, "image"),
	} {
		if word := strings.TrimSuffix(strings.Fields(want)[0], ":"); !strings.HasPrefix(fmt.Sprint(got), word) {
			t.Errorf("%s: got %v", want, got)
		}
	}
}

// A stop may take 10 s more than its drain: the template holds to what the chart says.
func TestChart_RefusesToKillADrain(t *testing.T) {
	helpers := read(t, chart+"/templates/_helpers.tpl")
	if assumed := fmt.Sprintf(`default "%ds"`, int(drainTimeout(t).Seconds())); !strings.Contains(helpers, assumed) {
		t.Errorf("the chart does not take %s for relay.drain_timeout", assumed)
	}
	for drain, least := range map[string]int{
		"":         40,
		"4s":       14,
		"500ms":    11,
		"90000ms":  100,
		"50s":      60,
		"59.5s":    70,
		"1m":       70,
		"1.5m":     100,
		"1m30s":    100,
		"1h0m5s":   3615,
		"1s1500ms": 13,
		"1s500us":  12,
		"2s1µs":    13,
		"1ns":      11,
		"${DRAIN}": 10,
	} {
		for grace, allowed := range map[int]bool{least - 1: false, least: true} {
			_, err := tryChart(t, fmt.Sprintf("{terminationGracePeriodSeconds: %d, config: {relay: {drain_timeout: %q}}}", grace, drain))
			says := fmt.Sprintf("10 s more than relay.drain_timeout, which is %s: at least %d", cmp.Or(drain, "30s"), least)
			if allowed != (err == nil) || err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%d s to stop and a drain of %q: %v", grace, drain, err)
			}
		}
	}
}

func TestChart_EachShardHasAPod(t *testing.T) {
	sharded := strings.Replace(minimal, "config:", "shards: 3\nsetup: {enabled: true}\nconfig:", 1)
	objects := renderChart(t, sharded)
	set := kind(t, objects, "StatefulSet", "orders-cdc-relay-shard")
	standby := kind(t, objects, "Deployment", "orders-cdc-relay")
	for want, got := range map[string]any{
		"3 pods":    at(t, set, "spec", "replicas"),
		"Parallel":  at(t, set, "spec", "podManagementPolicy"),
		"shard":     at(t, set, "spec", "selector", "matchLabels", "app.kubernetes.io/component"),
		"2 standby": at(t, standby, "spec", "replicas"),
		"Recreate":  at(t, standby, "spec", "strategy", "type"),
		"1 at most": at(t, kind(t, objects, "PodDisruptionBudget", "orders-cdc-relay"), "spec", "maxUnavailable"),
	} {
		if word := strings.Fields(want)[0]; fmt.Sprint(got) != word {
			t.Errorf("%s: got %v", want, got)
		}
	}
	if labels := at(t, standby, "spec", "template", "metadata", "labels").(object); labels["app.kubernetes.io/component"] != nil {
		t.Error("the StatefulSet would select the pods of the Deployment")
	}
	if labels := at(t, set, "spec", "template", "metadata", "labels").(object); labels["app.kubernetes.io/component"] != "shard" {
		t.Error("the StatefulSet does not select its own pods")
	}
	for _, w := range []struct {
		workload object
		own      []int
	}{{set, []int{1}}, {standby, []int{0, 1, 2}}} {
		if own := loadMounted(t, objects, w.workload).OwnShards(); !slices.Equal(own, w.own) {
			t.Errorf("the %s has the shards %v, want %v", w.workload["kind"], own, w.own)
		}
	}
	loadMounted(t, objects, kind(t, objects, "Job", "orders-cdc-relay-setup"))

	for values, want := range map[string]string{
		"shards: 1": "2 or more",
		"shards: 3\nconfig: {postgres: {shards: 2}}":                                                                        "config.postgres.shards is another number",
		"maintenance: {cronJob: {enabled: true}}\nconfig: {maintenance: {interval: 5m}}":                                    "config.maintenance.interval is for those",
		"maintenance: {cronJob: {enabled: true}}\nconfig: {outbox: [{table: public.outbox, mark: {column: published_at}}]}": "outbox[].mark is one of them",
	} {
		if _, err := tryChart(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// What the chart mounts and names has to be what the relay reads.
func TestChart_ConfigurationLoadsWithWhatIsMounted(t *testing.T) {
	for name, values := range map[string]string{"minimal": minimal, "full": full} {
		t.Run(name, func(t *testing.T) {
			objects := renderChart(t, values)
			loadMounted(t, objects, kind(t, objects, "Deployment", "orders-cdc-relay"))
			if name == "full" {
				loadMounted(t, objects, kind(t, objects, "Job", "orders-cdc-relay-setup"))
				cron := at(t, kind(t, objects, "CronJob", "orders-cdc-relay-retention"), "spec", "jobTemplate").(object)
				loadMounted(t, objects, cron)
			}
		})
	}
}

func loadMounted(t *testing.T, objects []object, workload object) *config.Config {
	t.Helper()
	pod := at(t, workload, "spec", "template", "spec")
	container := at(t, pod, "containers", 0).(object)
	sources := map[string]object{}
	for _, volume := range at(t, pod, "volumes").([]any) {
		sources[volume.(object)["name"].(string)] = volume.(object)
	}
	files := map[string]string{}
	for _, mount := range container["volumeMounts"].([]any) {
		path := at(t, mount, "mountPath").(string)
		source := sources[at(t, mount, "name").(string)]
		switch {
		case source == nil:
			t.Fatalf("mount %s has no volume", path)
		case source["configMap"] != nil:
			files[path] = at(t, kind(t, objects, "ConfigMap", at(t, source, "configMap", "name").(string)), "data", "config.yaml").(string)
		case source["secret"] != nil && at(t, source, "secret").(object)["items"] != nil:
			files[path+"/"+at(t, source, "secret", "items", 0, "path").(string)] = "secret\n"
		}
	}
	var environ []string
	if list, ok := container["env"].([]any); ok {
		for _, variable := range list {
			if source, found := variable.(object)["valueFrom"]; found { // the ordinal of a pod, such as 1
				if field := at(t, source, "fieldRef", "fieldPath"); field != "metadata.labels['apps.kubernetes.io/pod-index']" {
					t.Errorf("%v comes from %v", variable, field)
				}
				environ = append(environ, at(t, variable, "name").(string)+"=1")
				continue
			}
			environ = append(environ, at(t, variable, "name").(string)+"="+at(t, variable, "value").(string))
		}
	}
	cfg, err := config.Load(config.Options{
		Path: "/etc/cdc-relay/config.yaml", Environ: environ,
		ReadFile: func(path string) ([]byte, error) {
			if text, ok := files[path]; ok {
				return []byte(text), nil
			}
			return nil, os.ErrNotExist
		},
	})
	if err != nil {
		t.Fatalf("%v\n%s\n%q", err, files["/etc/cdc-relay/config.yaml"], environ)
	}
	secrets := 0
	for path := range files {
		if strings.Contains(path, "/secrets/") {
			secrets++
		}
	}
	for _, variable := range environ {
		_, path, _ := strings.Cut(variable, "=")
		if strings.Contains(path, "/secrets/") {
			if files[path] == "" {
				t.Errorf("%s, but nothing is mounted there", variable)
			}
			secrets--
		}
	}
	if secrets > 1 { // setup brings a password of its own and leaves the relay's aside
		t.Errorf("%d secrets are mounted and not read", secrets)
	}
	if port := regexp.MustCompile(`[0-9]+$`).FindString(cfg.HTTP().Listen); container["ports"] != nil && fmt.Sprint(at(t, container, "ports", 0, "containerPort")) != port {
		t.Errorf("the relay listens on %s, the container has port %v", port, container["ports"])
	}
	return cfg
}

func TestChart_BringsAlertsDashboardAndScraping(t *testing.T) {
	objects := renderChart(t, full)
	rule := kind(t, objects, "PrometheusRule", "orders-cdc-relay")
	if n := len(at(t, rule, "spec", "groups", 0, "rules").([]any)); n != len(alertRules(t)) {
		t.Errorf("the chart has %d alert rules", n)
	}
	if text := at(t, kind(t, objects, "ConfigMap", "orders-cdc-relay-dashboard"), "data", "cdc-relay.json").(string); !json.Valid([]byte(text)) {
		t.Error("the dashboard in the ConfigMap is not JSON")
	}
	monitor := kind(t, objects, "ServiceMonitor", "orders-cdc-relay")
	if at(t, monitor, "spec", "endpoints", 0, "port") != at(t, kind(t, objects, "Service", "orders-cdc-relay"), "spec", "ports", 0, "name") {
		t.Error("the ServiceMonitor asks at a port that the Service does not have")
	}
	if at(t, monitor, "spec", "endpoints", 0, "authorization", "credentials", "name") != "token" {
		t.Error("the ServiceMonitor does not bring the token")
	}
	if at(t, kind(t, objects, "Job", "orders-cdc-relay-setup"), "metadata", "annotations", "helm.sh/hook") != "pre-install" {
		t.Error("setup runs at other times than the first installation")
	}
}
