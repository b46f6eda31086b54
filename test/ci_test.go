package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ciFunctions runs a script behind the functions of .ci/run, with set -eu and commands in place of the system's.
func ciFunctions(t *testing.T, script string, env ...string) string {
	t.Helper()
	return withFunctions(t, ".ci/run", []string{"in_memory", "as_static", "tests", "rest", "computing", "waiting"}, script, env...)
}

// withFunctions runs a script behind functions of another, in the project's folder.
func withFunctions(t *testing.T, file string, names []string, script string, env ...string) string {
	t.Helper()
	text, functions := read(t, file), ""
	for _, name := range names {
		_, from, found := strings.Cut(text, "\n"+name+"() {")
		body, _, ended := strings.Cut(from, "\n}\n")
		if !found || !ended {
			t.Fatalf("%s has no function %s", file, name)
		}
		functions += name + "() {" + body + "\n}\n"
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -euo pipefail\n"+functions+script)
	cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
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
		part=tests
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
		part=all place=$PLACE day=1 root_tests=(:)
		step() { :; }
		tests >/dev/null 2>&1
		step() { echo "$*"; }
		journeys() { step "$1" "${in_copy[@]}"; }
		rest`
	for account, want := range map[string]int{"": 0, "yes": 9} {
		got := ciFunctions(t, with, "ACCOUNT="+account, "PLACE="+t.TempDir())
		if n := strings.Count(got, " .ci/as --root"); n != want || account == "" && strings.Count(got, "\n") != 7 {
			t.Errorf("account %q: %d steps in the copy, want %d:\n%s", account, n, want, got)
		}
	}
}

// The binary is compiled with its own flags once: for the image, or by make build.
func TestCI_CompilesTheBinaryOnce(t *testing.T) {
	const with = `
		in_memory() { :; }
		bash() { true; }
		id() { echo 0; }
		part=all day=1 place=$PLACE root_tests=(:)
		step() { echo "$*"; if [ "$1" = engine ] && [ -n "$ENGINE" ]; then touch "$place/engine"; fi; }
		journeys() { :; }
		tests
		rest`
	for engine, want := range map[string]int{"yes": 0, "": 1} {
		got := ciFunctions(t, with, "PLACE="+t.TempDir(), "ENGINE="+engine)
		if n := strings.Count(got, "make build"); n != want {
			t.Errorf("engine %q: make build %d times, want %d:\n%s", engine, n, want, got)
		}
		for _, step := range []string{"make test SHORT=1", "make test-root SHORT=1", "make lint", ".ci/engine"} {
			if strings.Count(got, step) != 1 {
				t.Errorf("engine %q: not once %s:\n%s", engine, step, got)
			}
		}
	}
}

// Programs that tests start collect garbage as those of users do, and compilers less often.
func TestCI_ProgramsCollectGarbageAsAlways(t *testing.T) {
	folder := t.TempDir()
	program := "package main\n\nimport \"os\"\n\nfunc main() { println(\"GOGC=\" + os.Getenv(\"GOGC\")) }\n"
	for name, text := range map[string]string{"go.mod": "module m\n", "main.go": program} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := ciFunctions(t, `as_static; echo "compilers: $GOGC"; go -C "$FOLDER" run .`, "FOLDER="+folder, "GOWORK=off"); got != "compilers: 400\nGOGC=" {
		t.Errorf("got %q", got)
	}
}

// A package that a step compiles otherwise than the others is compiled twice: what tests build by themselves is built
// without cgo and paths. Go's name for what it compiles, and how, is the id of the build.
func TestCI_StepsCompileAsTestsBuild(t *testing.T) {
	const compiled = ` -n -a ./cmd/cdc-relay 2>&1 | sed -n 's/.* \(-p [^ ]*\) .* \(-buildid [^ ]*\) .*/\1 \2/p' | grep -v '^-p main ' | sort`
	step := ciFunctions(t, "as_static\ngo build"+compiled)
	build := ciFunctions(t, "CGO_ENABLED=0 go build -trimpath"+compiled)
	if step != build {
		t.Errorf("a step compiles\n%s\nand a test that builds\n%s", step, build)
	}
	if n := strings.Count(build, "\n"); n < 300 {
		t.Errorf("go build says how it compiles %d packages only:\n%s", n, build)
	}
}

// The detector watches whatever starts goroutines, or is used by several.
func TestModules_RaceDetectorWatchesGoroutines(t *testing.T) {
	const which = `for folder in $FOLDERS; do if is_unraced "./$folder"; then echo "$folder"; fi; done`
	folders := "relay relay/delivery sink/kafka sink/topics replication checkpoint deadletter metrics router/column debezium/importer ways"
	got := withFunctions(t, "test/modules.sh", []string{"is_unraced"}, "unraced=./sink/topics\n"+which, "FOLDERS="+folders)
	if want := "sink/topics\nrouter/column\ndebezium/importer\nways"; got != want {
		t.Errorf("without the race detector:\n%s\nwant:\n%s", got, want)
	}
	if got := withFunctions(t, "test/modules.sh", []string{"is_unraced"}, "unraced=\n"+which, "FOLDERS="+folders); got != "" {
		t.Errorf("the long form runs these without the race detector:\n%s", got)
	}
}
