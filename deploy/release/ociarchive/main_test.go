package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParse_ReadsTheDockerfile(t *testing.T) {
	text, err := os.ReadFile("../../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	c, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/cdc-relay"}) || !slices.Equal(c.Cmd, []string{"run"}) || c.StopSignal != "SIGTERM" || len(c.Labels) != 3 {
		t.Errorf("%+v", c)
	}
	if _, found := c.ExposedPorts["8080/tcp"]; !found {
		t.Errorf("ports: %v", c.ExposedPorts)
	}
	if h := c.Healthcheck; h == nil || h.Interval != 10*time.Second || h.StartPeriod != 20*time.Second || h.Retries != 3 || !slices.Equal(h.Test, []string{"CMD", "/cdc-relay", "healthcheck"}) {
		t.Errorf("health check: %+v", c.Healthcheck)
	}
	for _, unknown := range []string{"VOLUME /data", "COPY x /x", "HEALTHCHECK --start-interval=1s CMD [\"/x\"]"} {
		if _, err := parse(string(text) + unknown + "\n"); err == nil {
			t.Errorf("%s is left out without a word", unknown)
		}
	}
}

func TestWrite_GivesTheSameBytes(t *testing.T) {
	dir := t.TempDir()
	o := options{
		dockerfile: "../../../Dockerfile", binary: filepath.Join(dir, "binary"), certificates: filepath.Join(dir, "certificates"),
		arch: "arm64", name: "ghcr.io/cdc-relay/cdc-relay:1.2.3", created: time.Unix(1700000000, 0).UTC(),
	}
	var archives [2][]byte
	for i := range archives {
		// Their own times and modes are not the archive's.
		if err := errors.Join(os.WriteFile(o.binary, []byte("program"), 0o600), os.WriteFile(o.certificates, []byte("authorities"), 0o600)); err != nil {
			t.Fatal(err)
		}
		o.out = filepath.Join(dir, "out.tar")
		if err := write(o); err != nil {
			t.Fatal(err)
		}
		var err error
		if archives[i], err = os.ReadFile(o.out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of the same differ")
	}
	files := map[string][]byte{}
	for reader := tar.NewReader(bytes.NewReader(archives[0])); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("%v: %s", err, files["index.json"])
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	if err := json.Unmarshal(files[blob(index.Manifests[0].Digest)], &manifest); err != nil {
		t.Fatal(err)
	}
	layer := files[blob(manifest.Layers[0].Digest)]
	for name, want := range map[string]string{"cdc-relay": "program", "etc/ssl/certs/ca-certificates.crt": "authorities", "etc/passwd": passwd} {
		found := false
		for reader := tar.NewReader(bytes.NewReader(layer)); !found; {
			header, err := reader.Next()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if header.Name == name {
				found = true
				if data, _ := io.ReadAll(reader); string(data) != want {
					t.Errorf("%s = %q", name, data)
				}
			}
		}
	}
	if !strings.Contains(string(files[blob(manifest.Config.Digest)]), `"architecture":"arm64"`) {
		t.Errorf("configuration: %s", files[blob(manifest.Config.Digest)])
	}
}
