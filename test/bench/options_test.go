package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParse_RefusesWhatCouldNotBecomeAFigure(t *testing.T) {
	for line, want := range map[string]string{
		"drain":                            "is no flag",
		"-suites drain single":             "is no flag",
		"-rows 0":                          "-rows is 0",
		"-rows -5":                         "-rows is -5",
		"-rows 100000000":                  "-rows is",
		"-repeat 0":                        "-repeat is 0",
		"-seconds 0":                       "-seconds is 0",
		"-seconds 300":                     "-seconds is 300",
		"-poll-rows 0":                     "-poll-rows is 0",
		"-tier 5":                          "-tier is 5",
		"-outage 0s":                       "-outage is 0s",
		"-read results.json -suites drain": "-suites would mean nothing",
		"-rows many":                       "invalid value",
	} {
		if _, err := parse(strings.Fields(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %q", line, err, want)
		}
	}
	for line, want := range map[string]time.Duration{
		"": 20 * time.Second, "-full": 10 * time.Minute, "-full -outage 20s": 20 * time.Second, "-read x -docs y -json z": 20 * time.Second,
	} {
		if o, err := parse(strings.Fields(line)); err != nil || o.outage != want {
			t.Errorf("%s gives an outage of %s, %v; want %s", line, o.outage, err, want)
		}
	}
}

func TestParse_AContestantOfANameThatIsThereIsRefused(t *testing.T) {
	t.Setenv("CONTESTANT_debezium", "true")
	if _, err := parse(nil); err == nil || !strings.Contains(err.Error(), "CONTESTANT_debezium") {
		t.Error(err)
	}
}

// What cannot be written is said before the run, not after it.
func TestCanWrite(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(file, "")
	good, bare, broken := filepath.Join(dir, "good"), filepath.Join(dir, "bare"), filepath.Join(dir, "broken")
	write(filepath.Join(good, page), beginMark+"\n"+endMark+"\n")
	write(filepath.Join(bare, page), "no marks")
	write(filepath.Join(broken, page), beginMark+"\n"+endMark+"\n")
	write(resultsOf(broken), "{}")
	for _, c := range []struct {
		o    options
		fine bool
	}{
		{options{}, true},
		{options{json: filepath.Join(dir, "new.json"), docs: good}, true},
		{options{json: filepath.Join(dir, "none", "new.json")}, false},
		{options{json: filepath.Join(file, "new.json")}, false},
		{options{docs: dir}, false},
		{options{docs: bare}, false},
		{options{docs: broken}, false},
	} {
		if err := c.o.canWrite(); (err == nil) != c.fine {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}
