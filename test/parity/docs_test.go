package parity

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/parity/golden"
)

// maxExceptions is how many cases the relay may refuse where Debezium goes on.
const maxExceptions = 10

func TestExceptions_AreInTheDocument(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "debezium.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "### Exceptions")
	if !found {
		t.Fatal("debezium.md has no section Exceptions")
	}
	section, _, _ = strings.Cut(section, "\n#")
	for name, reason := range Exceptions {
		if _, err := os.Stat(filepath.Join("testdata", name+golden.Ext)); err != nil {
			t.Errorf("exception %s is no case: %v", name, err)
		}
		if row := fmt.Sprintf("| `%s` | %s |", name, reason); !strings.Contains(section, row) {
			t.Errorf("debezium.md lacks: %s", row)
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `").FindAllString(section, -1)
	if len(rows) != len(Exceptions) {
		t.Errorf("the document has %d exceptions, the code %d", len(rows), len(Exceptions))
	}
	if len(Exceptions) > maxExceptions {
		t.Errorf("%d exceptions; at most %d", len(Exceptions), maxExceptions)
	}
}
