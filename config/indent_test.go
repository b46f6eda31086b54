package config

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
)

// Whoever moves one line of the example to one side gets an error that points at it,
// or a file that says the same as before.
func TestExample_EveryMovedLineIsPointedAt(t *testing.T) {
	content, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(content), "\n")
	tried := 0
	for i, line := range lines {
		if !keyLine.MatchString(line) {
			continue
		}
		for _, by := range []int{-2, -1, 1, 2} {
			body := strings.TrimLeft(line, " ")
			indent := len(line) - len(body) + by
			if indent < 0 {
				continue
			}
			if tried++; tried%everyExample() != 0 {
				continue
			}
			moved := strings.Repeat(" ", indent) + body
			broken := strings.Join(lines[:i], "\n") + "\n" + moved + "\n" + strings.Join(lines[i+1:], "\n")
			if err := pointsAt(broken, i+1, i+1); err != nil && !saysTheSame(broken, string(content)) {
				t.Errorf("line %d moved by %d:\n%s\n%v", i+1, by, moved, err)
			}
		}
	}
	if tried < 250 {
		t.Errorf("only %d moves", tried)
	}
}

func saysTheSame(a, b string) bool {
	one, err1 := Load(Options{Path: "f", Environ: []string{}, ReadFile: testFiles{"f": a}.read})
	other, err2 := Load(Options{Path: "f", Environ: []string{}, ReadFile: testFiles{"f": b}.read})
	return err1 == nil && err2 == nil && reflect.DeepEqual(normal(one), normal(other))
}

func TestLoad_NamesTheLineThatIsIndentedWrongly(t *testing.T) {
	const rest = "outbox:\n  - table: public.outbox\nkafka:\n  brokers: [localhost:9092]\n"
	for _, c := range []struct {
		name, text   string
		line, column int
		want         string
	}{
		{"one further in", "postgres:\n  url: postgres://relay@localhost/shop\n   slot: orders\n" + rest, 3, 4, "this line is indented by 3 spaces, its neighbours by 2"},
		{"one less far in", "postgres:\n  url: postgres://relay@localhost/shop\n slot: orders\n" + rest, 3, 2, "this line is indented by 1 space, its neighbours by 2"},
		{"the first of its section", "postgres:\n   url: postgres://relay@localhost/shop\n  slot: orders\n" + rest, 2, 4, "this line is indented by 3 spaces, its neighbours by 2"},
		{"a section", "postgres:\n  url: postgres://relay@localhost/shop\n outbox:\n  - table: public.outbox\nkafka:\n  brokers: [localhost:9092]\n", 3, 2, "this line is indented by 1 space, its neighbours by 0"},
		{"a section within one", minimal + "tls:\n    enabled: true\n  sasl:\n    mechanism: plain\n", 7, 1, "this line is indented by 0 spaces, its neighbours by 2"},
		{"an item", "postgres:\n  url: postgres://relay@localhost/shop\noutbox:\n  - table: a\n - table: b\nkafka:\n  brokers: [localhost:9092]\n", 5, 2, "this line is indented by 1 space, its neighbours by 2"},
		{"a list as far in as its key", "postgres:\n  url: postgres://relay@localhost/shop\noutbox:\n- table: a\n  key: raw\n   topic: b\nkafka:\n  brokers:\n  - localhost:9092\n", 6, 4, "this line is indented by 3 spaces, its neighbours by 2"},
		{"free names", minimal + "  create_topics:\n    config:\n      retention.ms: 1\n       cleanup.policy: delete\n", 10, 8, "this line is indented by 7 spaces, its neighbours by 6"},
		{"below a text of several lines", "postgres:\n  url: >-\n    postgres://relay@localhost/shop\n    ?sslmode=disable\n   slot: orders\n" + rest, 5, 4, "this line is indented by 3 spaces, its neighbours by 2"},
	} {
		_, err := Load(Options{Path: "f", Environ: []string{}, ReadFile: testFiles{"f": c.text}.read})
		errs, ok := errors.AsType[*Errors](err)
		if !ok || len(errs.List) != 1 || errs.List[0].Line != c.line || errs.List[0].Column != c.column || errs.List[0].Message != c.want {
			t.Errorf("%s:\n%s\n%v", c.name, c.text, err)
		}
	}
}

// Other mistakes keep the words that they had.
func TestLoad_DoesNotBlameTheIndentationForOtherMistakes(t *testing.T) {
	for _, line := range []string{"  slot orders", "  slot:orders", "  slot: \"orders", "  slot: [orders", "  slot: a: b", "\tslot: orders", "  slot: @orders"} {
		text := strings.Replace(minimal, "outbox:", line+"\noutbox:", 1)
		_, err := Load(Options{Path: "f", Environ: []string{}, ReadFile: testFiles{"f": text}.read})
		if err == nil || strings.Contains(err.Error(), "indented") {
			t.Errorf("%s\n%v", line, err)
		}
	}
}
