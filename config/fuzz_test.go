package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoad wants no panic on any file, no secret in what comes out, and that
// what Print writes can be loaded.
func FuzzLoad(f *testing.F) {
	files, _ := filepath.Glob("testdata/*/*.yaml")
	for _, file := range append(files, exampleFile) {
		content, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) > 16<<10 {
			return
		}
		files := testFiles{"f": string(content), "secrets/ok": "x", "secrets/oauth": "x", "secrets/token": "x"}
		cfg, err := Load(Options{Path: "f", Environ: []string{"SET=x"}, ReadFile: files.read})
		if err != nil {
			_ = err.Error()
			return
		}
		var out bytes.Buffer
		if err := cfg.Print(&out); err != nil {
			t.Fatal(err)
		}
		files["again"] = out.String()
		if _, err := Load(Options{Path: "again", Environ: []string{}, ReadFile: files.read}); err != nil {
			t.Fatalf("%v\nin what was printed:\n%s", err, out.String())
		}
	})
}

// FuzzLoad_NeverShowsSecrets puts a secret into each key that takes one and
// breaks the file around it.
func FuzzLoad_NeverShowsSecrets(f *testing.F) {
	for _, broken := range []string{"", "x", "\"", "{", "\t", ": ", "\n  slot: X", "', mechanism: no", "\nlog: {level: no}", "]"} {
		for where := range byte(8) {
			f.Add(where, broken, "")
			f.Add(where, "", broken)
		}
	}
	const hidden = "xyzzyplugh"
	f.Fuzz(func(t *testing.T, where byte, before, after string) {
		if strings.Contains(before+after, "#") || len(before)+len(after) > 4096 {
			return
		}
		shapes := []string{
			"postgres:\n  password: %\n", "postgres:\n  url: postgres://u:%@h/db\n", "postgres: {password: \"%\"}\n", "kafka:\n  sasl: {mechanism: no, password: %}\n",
			"kafka: {oauth: {client_secret: '%', client_id: [x]}}\n", "http:\n  token: |\n    %\n  listen: no\n", "postgres:\n  passwort: %\n", "postgres:\n  url: host=h password=%\n",
		}
		shape := shapes[int(where)%len(shapes)]
		// The secret stands where a secret belongs; what surrounds it is broken
		// inside its own value or behind it.
		text := strings.Replace(shape, "%", hidden+after, 1) + before
		files := testFiles{"f": text}
		cfg, err := Load(Options{Path: "f", Environ: []string{}, ReadFile: files.read})
		if err != nil {
			if strings.Contains(err.Error(), hidden) {
				t.Fatalf("shows the secret of\n%s\nin\n%v", text, err)
			}
			return
		}
		var out bytes.Buffer
		if err := cfg.Print(&out); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String()+strings.Join(cfg.Warnings, ""), hidden) {
			t.Fatalf("prints the secret of\n%s", text)
		}
	})
}
