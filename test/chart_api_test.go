package test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// kubernetesModule is a small module that holds the definitions of the whole
// Kubernetes API. The build needs the module proxy anyway, so it can be had.
const kubernetesModule = "k8s.io/cli-runtime@v0.34.0"

// kubernetesAPI gives the definitions, in which objects have no properties but
// those that they name: a misspelt one is a mistake, as it is with strict
// validation on a cluster.
func kubernetesAPI(t *testing.T) object {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", kubernetesModule)
	cmd.Dir = t.TempDir() // outside of our module, whose go.mod does not name it
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.Output()
	var module struct{ Dir, Error string }
	if parsed := json.Unmarshal(out, &module); err != nil || parsed != nil || module.Dir == "" {
		message := "the definitions of the Kubernetes API are missing\nto run this test: go mod download " + kubernetesModule + ": " + module.Error
		harness.NotHere(t, message)
	}
	data, err := os.ReadFile(filepath.Join(module.Dir, "artifacts", "openapi", "swagger.json"))
	if err != nil {
		t.Fatal(err)
	}
	var api object
	if err := json.Unmarshal(data, &api); err != nil {
		t.Fatal(err)
	}
	strict(api["definitions"])
	return api
}

// strict turns the definitions into schemas of JSON Schema.
func strict(value any) {
	switch value := value.(type) {
	case object:
		if value["properties"] != nil && value["additionalProperties"] == nil && value["type"] == "object" {
			value["additionalProperties"] = false
		}
		if value["format"] == "int-or-string" {
			value["type"] = []any{"integer", "string"}
		}
		for _, below := range value {
			strict(below)
		}
	case []any:
		for _, below := range value {
			strict(below)
		}
	}
}

// definitionOf is where the API has an object's kind; empty for kinds of operators.
func definitionOf(o object) string {
	group, version, grouped := strings.Cut(o["apiVersion"].(string), "/")
	if !grouped {
		group, version = "core", group
	}
	if strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") {
		return ""
	}
	return "io.k8s.api." + strings.TrimSuffix(group, ".k8s.io") + "." + version + "." + o["kind"].(string)
}

func TestChart_FitsTheKubernetesAPI(t *testing.T) {
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("kubernetes.json", kubernetesAPI(t)); err != nil {
		t.Fatal(err)
	}
	check := func(o object) (bool, error) {
		name := definitionOf(o)
		if name == "" {
			return false, nil
		}
		schema, err := compiler.Compile("kubernetes.json#/definitions/" + name)
		if err != nil {
			return true, err
		}
		return true, schema.Validate(o)
	}
	for name, values := range map[string]string{"minimal": minimal, "full": full, "sharded": "shards: 2\n" + minimal} {
		checked := 0
		for _, o := range renderChart(t, values) {
			known, err := check(o)
			if err != nil {
				t.Errorf("%s: %s %v: %v", name, o["kind"], o["metadata"].(object)["name"], err)
			}
			if known {
				checked++
			}
		}
		if want := map[string]int{"minimal": 5, "full": 10, "sharded": 6}[name]; checked != want {
			t.Errorf("%s: %d objects were held against the API, want %d", name, checked, want)
		}
	}
	// The check has to find something where there is something.
	deployment := kind(t, renderChart(t, minimal), "Deployment", "orders-cdc-relay")
	at(t, deployment, "spec", "template", "spec", "containers", 0).(object)["livenesProbe"] = object{}
	if _, err := check(deployment); err == nil {
		t.Error("a misspelt probe passes")
	}
}
