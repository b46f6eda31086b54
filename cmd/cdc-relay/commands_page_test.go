package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
)

const commandsPage = "../../docs/commands.md"

// docs/commands.md is what --help prints: go test ./cmd/cdc-relay -run CommandsPage -update
// writes it.
func TestCommandsPage_IsWhatHelpPrints(t *testing.T) {
	var out strings.Builder
	out.WriteString("# Commands\n\nWhat `--help` prints, written by `go test ./cmd/cdc-relay -run CommandsPage -update`. " +
		"The exit codes are in the [operations reference](operations.md#exit-codes).\n\n")
	var contents, texts strings.Builder
	helpOf(t, &contents, &texts, nil)
	out.WriteString(contents.String() + texts.String())
	if *update {
		if err := os.WriteFile(commandsPage, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(commandsPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != out.String() {
		t.Error("docs/commands.md differs from --help: run go test ./cmd/cdc-relay -run CommandsPage -update")
	}
}

// helpOf writes the help of a command and of those below it. What all commands share
// stands with the program.
func helpOf(t *testing.T, contents, texts *strings.Builder, path []string) {
	t.Helper()
	var screen bytes.Buffer
	if code := run(context.Background(), append(path, "--help"), process{stdout: &screen, stderr: &screen}); code != 0 {
		t.Fatalf("%v --help ends with %d: %s", path, code, &screen)
	}
	help := strings.TrimSpace(screen.String())
	name := strings.Join(append([]string{"cdc-relay"}, path...), " ")
	contents.WriteString(strings.Repeat("  ", len(path)) + "* [`" + name + "`](#" + strings.ReplaceAll(name, " ", "-") + ")\n")
	shown := help
	if len(path) > 0 {
		shown, _, _ = strings.Cut(shown, "\n\nGlobal Flags:")
	}
	shown, _, _ = strings.Cut(shown, "\n\nUse \"cdc-relay")
	texts.WriteString("\n## `" + name + "`\n\n```text\n" + shown + "\n```\n")
	_, list, _ := strings.Cut(help, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for line := range strings.Lines(list) {
		if verb := strings.Fields(line)[0]; verb != "help" && verb != "completion" {
			helpOf(t, contents, texts, append(path[:len(path):len(path)], verb))
		}
	}
}
