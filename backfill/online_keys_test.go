package backfill

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/backfill/buckets"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// keysOf gives the key's column a type, or a domain of one.
func (s *scene) keysOf(t *testing.T, kind string) {
	t.Helper()
	if base, isDomain := strings.CutPrefix(kind, "DOMAIN "); isDomain {
		kind = harness.Unique(t, "domain")
		s.db.Exec(t, "CREATE DOMAIN "+kind+" AS "+base)
	}
	s.db.Exec(t, "ALTER TABLE outbox ALTER aggregate_id DROP NOT NULL, ALTER aggregate_id TYPE "+kind+" USING NULL")
}

// The server and this program find the same bucket for keys of any type, so no row is refused.
func TestOnline_DividesKeysOfAnyType(t *testing.T) {
	t.Parallel()
	for kind, of := range map[string]string{
		"uuid": "md5(n::text)::uuid", "char(12)": "'k' || n", "boolean": "n % 2 = 0", "bigint": "n", "numeric(10,3)": "n / 8.0", "text": "nullif('ключ ' || n % 7, 'ключ 3')",
		"timestamptz": "timestamptz '2026-01-01 00:00:00+00' + n * interval '1 minute'", "double precision": "n / 3.0", "bytea": "n::text::bytea", "date": "date '2026-01-01' + n",
		"name": "'k' || n", "varchar(40)": "'k' || n", "DOMAIN text": "'k' || n", "DOMAIN varchar(40)": "'k' || n", "DOMAIN bigint": "n",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
			s.keysOf(t, kind)
			insert := "INSERT INTO outbox SELECT n, 'a', " + of + ", 'e', n::text FROM generate_series($1::int, $2) n"
			s.db.Exec(t, insert, 1, 50)
			n, two := 50, bucketed
			two.Buckets = 2
			text, err := s.attempt(t.Context(), two, func(step string) {
				if step == "bucket_done" {
					s.db.Exec(t, insert, n+1, n+20)
					n += 20
				}
			})
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			s.stream(t)
			list := s.committed(t)
			slices.Sort(list)
			if len(list) != n || len(slices.Compact(list)) != n {
				t.Errorf("%d records, want %d", len(list), n)
			}
		})
	}
}

// The text of these types is another one in SQL than in the stream. A row would be of two buckets, and be lost
// when it is written between them.
func TestOnline_RefusesKeysWithTwoTexts(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"DOMAIN char(10)", "DOMAIN boolean", "inet", "DOMAIN inet", `"char"`} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
			s.keysOf(t, kind)
			_, err := s.attempt(t.Context(), Options{All: true, Online: true, Buckets: 4}, nil)
			if err == nil || !strings.Contains(err.Error(), "has another text in SQL than in the stream") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A collation that takes a key for an empty one does not have it stand in another bucket.
func TestOnline_EmptyKeysHaveNoByte(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t, "18")
	db.Exec(t, "CREATE COLLATION no_signs (provider = icu, locale = 'und-u-ka-shifted-ks-level1', deterministic = false)")
	key := buckets.Key{Column: "k", Fallback: "other"}
	for value, want := range map[string]string{"-": "-", "": "x", "a": "a"} {
		got := harness.Query[string](t, db, "SELECT "+key.Text()+` FROM (SELECT $1::text COLLATE no_signs AS k, 'x' AS other) one`, value)
		if got != want {
			t.Errorf("the key of %q is %q, want %q", value, got, want)
		}
	}
}
