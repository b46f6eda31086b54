package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every file of testdata/errors is a configuration with mistakes; comments of
// the form `# env NAME=value` and `# set key=value` add to it. The golden beside
// it is the exact text.
func TestLoad_NamesEveryMistakeWithItsPlace(t *testing.T) {
	files, err := filepath.Glob("testdata/errors/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(strings.TrimSuffix(name, ".yaml"), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			o := Options{Path: name, Environ: []string{}}
			for line := range strings.Lines(string(content)) {
				line = strings.TrimSuffix(line, "\n")
				if env, ok := strings.CutPrefix(line, "# env "); ok {
					o.Environ = append(o.Environ, env)
				}
				if set, ok := strings.CutPrefix(line, "# set "); ok {
					o.Set = append(o.Set, set)
				}
			}
			o.ReadFile = testFiles{name: string(content), "secrets/empty": "\n", "secrets/ok": "s3cret-from-file", "ca.pem": "s3cret, no certificate"}.read
			if strings.HasPrefix(name, "nofile") {
				o.Path = ""
			}
			_, err = Load(o)
			if err == nil {
				t.Fatal("no error")
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("shows a secret:\n%v", err)
			}
			compareGolden(t, strings.TrimSuffix(file, ".yaml")+".golden", err.Error()+"\n")
		})
	}
}

func TestErrors_UnwrapToSingleOnes(t *testing.T) {
	_, err := Load(Options{Path: "f", Environ: []string{}, ReadFile: testFiles{"f": strings.Replace(minimal, "outbox:", "  slot: A-b\noutbox:", 1)}.read})
	errs, ok := err.(*Errors) //nolint:errorlint // the documented type
	if !ok || len(errs.List) != 1 {
		t.Fatalf("%T %v", err, err)
	}
	if e := errs.List[0]; e.Source != "f" || e.Line != 3 || e.Column != 9 || e.Key != "postgres.slot" {
		t.Errorf("%+v", e)
	}
}
