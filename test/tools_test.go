//go:build tools

// The tests here need programs that take minutes to build. `make test` leaves them out; the
// deploy job of the hosted workflow builds with the tag and has the programs.

package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestChart_HelmRendersTheSame(t *testing.T) {
	helm := tool(t, "helm", "install helm, for example with `GOBIN=$PWD/.bin go install helm.sh/helm/v3/cmd/helm@v3.19.0` (minutes)")
	toolOutput(t, ".", helm, "lint", "--strict", "--kube-version", "1.30.0", chart)
	for _, values := range []string{minimal, full} {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		rendered := documentsOf(t, toolOutput(t, ".", helm, "template", "orders", chart, "--namespace", "shop", "--kube-version", "1.30.0", "-f", file))
		ours := renderChart(t, values)
		if len(rendered) != len(ours) {
			t.Errorf("helm renders %d objects, we %d", len(rendered), len(ours))
		}
		for _, want := range rendered {
			got := kind(t, ours, want["kind"].(string), at(t, want, "metadata", "name").(string))
			if want["kind"] == "Deployment" { // the order and style of the YAML that is summed up differ
				delete(at(t, want, "spec", "template", "metadata", "annotations").(object), "checksum/config")
				delete(at(t, got, "spec", "template", "metadata", "annotations").(object), "checksum/config")
			}
			if want["kind"] == "ConfigMap" {
				if text, ok := at(t, want, "data").(object)["config.yaml"].(string); ok {
					want["data"] = decode(t, text)
					got["data"] = decode(t, at(t, got, "data", "config.yaml").(string))
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("helm renders\n%v\nwe\n%v", want, got)
			}
		}
	}
}

func TestPackages_AreMade(t *testing.T) {
	nfpm := tool(t, "nfpm", "install nfpm, for example with `GOBIN=$PWD/.bin go install github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0`")
	dir := t.TempDir()
	text := strings.ReplaceAll(read(t, "deploy/nfpm.yaml"), ".bin/cdc-relay", unit) // any file will do for the binary
	file := filepath.Join(dir, "nfpm.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"deb", "rpm"} {
		cmd := exec.Command(nfpm, "package", "-f", file, "-p", kind, "-t", dir)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "VERSION=1.2.3", "ARCH=amd64")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", kind, err, out)
		}
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		t.Fatalf("%q, %v", debs, err)
	}
	if dpkg, err := exec.LookPath("dpkg-deb"); err == nil {
		list := toolOutput(t, ".", dpkg, "--contents", debs[0])
		for _, want := range []string{"-rwxr-xr-x", "/usr/bin/cdc-relay", "-rw-------", "/etc/cdc-relay/config.yaml", "/usr/lib/systemd/system/cdc-relay.service"} {
			if !strings.Contains(list, want) {
				t.Errorf("no %s in the package\n%s", want, list)
			}
		}
	}
}
