package migrations_test

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/migrations"
)

func TestInbox_MakesTablesAndGrantsInOneSchema(t *testing.T) {
	parts, err := migrations.Inbox(`odd "one"`, "billing")
	if err != nil || len(parts) != 2 {
		t.Fatal(parts, err)
	}
	for _, p := range parts {
		if !strings.Contains(p.Up, `"odd ""one""".inbox_progress`) || !strings.Contains(p.Down, `"odd ""one""".inbox`) || strings.Contains(p.Up+p.Down, `:"`) {
			t.Errorf("%s:\n%s\n%s", p.Name, p.Up, p.Down)
		}
	}
	if parts, err := migrations.Inbox("public", ""); err != nil || len(parts) != 1 {
		t.Error(parts, err)
	}
	for _, names := range [][2]string{{"", ""}, {strings.Repeat("x", 64), ""}, {"a\x00", ""}, {"public", strings.Repeat("x", 64)}} {
		if _, err := migrations.Inbox(names[0], names[1]); err == nil {
			t.Errorf("%q is allowed", names)
		}
	}
}
