package integration

import (
	"math/rand/v2"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/ways"
)

// What the console has to copy, PostgreSQL reads as what was meant.
func TestWays_AreQuotedAsPostgreSQLReadsThem(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	texts := []string{"plain", "select", "Pub", "a b", "it's", `"`, `\`, `\'`, `'; DROP TABLE x; --`, "$$", "a\nb", "ü\u202e", "E'", `\x41`, "1a", "_"}
	alphabet := []rune(`'"\;$ aA_1` + "\n\u202eü")
	for range 50 {
		var text []rune
		for range 1 + rand.IntN(12) {
			text = append(text, alphabet[rand.IntN(len(alphabet))])
		}
		texts = append(texts, string(text))
	}
	for _, text := range texts {
		if got := harness.Query[string](t, db, "SELECT"+" "+ways.Literal(text)+"::text"); got != text {
			t.Errorf("constant %q came as %q", text, got)
		}
		if len(text) < 60 { // which is where PostgreSQL cuts names
			got := harness.Query[string](t, db, "SELECT json_object_keys(row_to_json(r)) FROM (SELECT 1 AS "+ways.Identifier(text)+") r")
			if got != text {
				t.Errorf("name %q came as %q", text, got)
			}
		}
	}
}
