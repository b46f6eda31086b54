package migrations

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write goldens")

func TestRender_GivesReviewedSQL(t *testing.T) {
	for name, render := range map[string]func() (string, error){
		"outbox_up":     func() (string, error) { return Table("", "public", "outbox") },
		"outbox_down":   func() (string, error) { return DropTable("outbox", "public", "outbox") },
		"polling_up":    func() (string, error) { return Table(Polling, "public", "outbox") },
		"polling_down":  func() (string, error) { return DropTable(Polling, "public", "outbox") },
		"debezium_up":   func() (string, error) { return Table("debezium", "Shop", `out"box`) },
		"debezium_down": func() (string, error) { return DropTable("debezium", "Shop", `out"box`) },
	} {
		t.Run(name, func(t *testing.T) {
			got, err := render()
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, filepath.Join("testdata", name+".sql"), got)
		})
	}
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (write it with -update)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs (write it with -update):\n%s", file, got)
	}
}

func TestRender_RefusesWhatIsNoName(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, render := range []func() (string, error){
		func() (string, error) { return Table("", "public", "") },
		func() (string, error) { return Table("", "", "outbox") },
		func() (string, error) { return Table("", "public", long) },
		func() (string, error) { return Table("", "public", "a\x00b") },
		func() (string, error) { return Table("nosuch", "public", "outbox") },
		func() (string, error) { return Table("../migrations", "public", "outbox") },
		func() (string, error) { return up(ServiceRole("self", Login{Database: "shop"})) },
		func() (string, error) { return up(ServiceRole("self", Login{Role: "r", Database: long})) },
		func() (string, error) { return up(ServiceRole("nosuch", Login{Role: "r"})) },
		func() (string, error) { p, err := Read("r", []Name{{"", "x"}}); return p.Up, err },
		func() (string, error) { p, err := Read("", []Name{{"public", "x"}}); return p.Up, err },
	} {
		if text, err := render(); err == nil || text != "" {
			t.Errorf("accepted: %s", text)
		}
	}
}

func up(p Part, _ []string, err error) (string, error) { return p.Up, err }

// A name that looks like a variable must stay a name.
func TestRender_DoesNotExpandNames(t *testing.T) {
	got, err := Table("", `:"table"`, `:tables`)
	if err != nil {
		t.Fatal(err)
	}
	if want := `CREATE TABLE ":""table"""."` + `:tables" (`; !strings.Contains(got, want) {
		t.Errorf("%q is missing in\n%s", want, got)
	}
}

func TestPresets_ListsThoseWithSQL(t *testing.T) {
	presets := Presets()
	if !slices.IsSorted(presets) || !slices.Contains(presets, DefaultPreset) || slices.Contains(presets, "testdata") {
		t.Errorf("%q", presets)
	}
	for _, preset := range presets {
		for _, render := range []func(preset, schema, table string) (string, error){Table, DropTable} {
			if text, err := render(preset, "s", "t"); err != nil || !strings.Contains(text, `"s"."t"`) || strings.Contains(text, `:"`) {
				t.Errorf("%s: %v\n%s", preset, err, text)
			}
		}
	}
}
