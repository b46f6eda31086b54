package test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// ciFunctions runs a script behind the functions of .ci/run, with set -eu and commands in place of the system's.
func ciFunctions(t *testing.T, script string, env ...string) string {
	t.Helper()
	text := read(t, ".ci/run")
	functions := ""
	for _, name := range []string{"in_memory", "tests", "rest", "computing", "waiting"} {
		_, from, found := strings.Cut(text, "\n"+name+"() {\n")
		body, _, ended := strings.Cut(from, "\n}\n")
		if !found || !ended {
			t.Fatalf(".ci/run has no function %s", name)
		}
		functions += name + "() {\n" + body + "\n}\n"
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -euo pipefail\n"+functions+script)
	cmd.Env = append(os.Environ(), env...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return strings.TrimSpace(string(output))
}

// Memory that a container does not have would end its tests.
func TestCI_KeepsFilesInMemoryWhereThereIsEnough(t *testing.T) {
	const enough = `
		awk() { echo 64; }
		df() { echo 40G; }
		mktemp() { mkdir -p "$FOLDER" && echo "$FOLDER"; }
		cat() { echo "$LIMIT"; }
		in_memory`
	for limit, want := range map[string]bool{"": true, "max": true, "9223372036854771712": true, "2147483648": false} {
		folder := t.TempDir() + "/memory"
		if got := ciFunctions(t, enough, "FOLDER="+folder, "LIMIT="+limit); (got == folder) != want || !want && got != "" {
			t.Errorf("limit %q: %q", limit, got)
		}
	}
}

// What Go compiles stays where the caller wants it, unless that folder is the caller's own.
func TestCI_CompilesWhereTheCallerSays(t *testing.T) {
	const with = `
		in_memory() { echo /memory; }
		bash() { [ -n "$ACCOUNT" ]; }
		id() { echo 0; }
		step() { echo "$*"; }
		tests`
	for account, want := range map[string]string{"": "GOTMPDIR=/large ", "yes": "GOTMPDIR=/tmp "} {
		got := ciFunctions(t, with, "ACCOUNT="+account, "TMPDIR=/large", "GOTMPDIR=")
		if n := strings.Count(got, "TMPDIR=/memory "+want); n == 0 || n != strings.Count(got, "make test") {
			t.Errorf("account %q:\n%s", account, got)
		}
	}
}

// The rest runs in the copy of the account that the tests ran as, and in place where there is none.
func TestCI_RestRunsWhereTheTestsWereCompiled(t *testing.T) {
	const with = `
		in_memory() { :; }
		bash() { [ -n "$ACCOUNT" ]; }
		id() { echo 0; }
		part=all place=$PLACE
		step() { :; }
		tests >/dev/null 2>&1
		step() { echo "$*"; }
		journeys() { step "$1" "${in_copy[@]}"; }
		rest`
	for account, want := range map[string]int{"": 0, "yes": 7} {
		got := ciFunctions(t, with, "ACCOUNT="+account, "PLACE="+t.TempDir())
		if n := strings.Count(got, " .ci/as --root"); n != want || strings.Count(got, "\n") != 6 {
			t.Errorf("account %q: %d steps in the copy, want %d:\n%s", account, n, want, got)
		}
	}
}
