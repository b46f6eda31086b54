package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestShapes_AreTheRoutersOwn(t *testing.T) {
	want, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../" + generated)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the presets and migrations give; run go generate in outbox/", generated)
	}
	for _, function := range []string{"func Outbox()", "func Polling()", "func Debezium()", "func Drizzle()", "func Prisma()", "func OpenOutbox()", "func GenericAggregate()"} {
		if !strings.Contains(string(want), function) {
			t.Errorf("there is no %s", function)
		}
	}
}

func TestParse_RefusesWhatItDoesNotUnderstand(t *testing.T) {
	for _, sql := range []string{"", "CREATE TABLE :\"schema\".:\"table\" (\n    id uuid,\n    CHECK (true)\n);"} {
		if got, err := parse(sql); err == nil {
			t.Errorf("%q gives %v", sql, got.rel.Columns)
		}
	}
}
