package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// shardVersion is the first with row filters.
const shardVersion = 150000

// hashes are the functions that a row filter may call, by the OID of the column's type.
// A filter permits immutable built-in functions alone, and no user-defined type. Equal
// texts are equal values of each of these types, so one key has one hash.
var hashes = map[uint32]struct {
	function string
	family   string // types of one family give the same key the same hash
	since    int    // server_version_num
	cast     string // how the server prints the argument's type
}{
	25:   {function: "hashtext", family: "text"},
	1043: {function: "hashtext", family: "text", cast: "::text"}, // varchar
	1042: {function: "hashbpchar", family: "char(n)"},
	19:   {function: "hashname", family: "name"},
	2950: {function: "uuid_hash", family: "uuid"},
	21:   {function: "hashint2", family: "integer"},
	23:   {function: "hashint4", family: "integer"},
	20:   {function: "hashint8", family: "integer"},
	1700: {function: "hash_numeric", family: "numeric"},
	17:   {function: "hashbytea", family: "bytea", since: 180000},
}

// firstUserOID is that of the first object that is not the server's own.
const firstUserOID = 16384

// Filter is the condition for a row to be in a shard.
type Filter struct {
	hash, column, cast string
	Family             string
	count, index       int
}

// SQL computes the condition. The sign is masked, since % keeps it; a NULL counts as
// the hash 0. Names are qualified where a function of that name could come first.
func (f Filter) SQL() string {
	return fmt.Sprintf("(COALESCE(pg_catalog.%s(%s), 0) & 2147483647) %% %d = %d", f.hash, wal.QuoteIdentifier(f.column), f.count, f.index)
}

// printed is how the server shows the condition.
func (f Filter) printed() string {
	argument := wal.QuoteIdentifier(f.column)
	if f.cast != "" {
		argument = "(" + argument + ")" + f.cast
	}
	return fmt.Sprintf("(((COALESCE(%s(%s), 0) & 2147483647) %% %d) = %d)", f.hash, argument, f.count, f.index)
}

// is reports whether the server's text is this condition.
func (f Filter) is(shown string) bool {
	got, ok := filterTokens(shown)
	want, _ := filterTokens(f.printed())
	if !ok || len(got) != len(want) {
		return false
	}
	for i := range got {
		if got[i] != want[i] {
			return false
		}
	}
	return true
}

// filterTokens splits an expression so that quotes which a name does not need, spaces
// and the qualification of a built-in function make no difference.
func filterTokens(text string) (tokens []string, ok bool) {
	for rest := text; rest != ""; {
		switch c := rest[0]; {
		case c == ' ' || c == '\n' || c == '\t':
			rest = rest[1:]
		case c == '"':
			name, after, err := wal.CutIdentifier(rest)
			if err != nil {
				return nil, false
			}
			tokens, rest = append(tokens, "name "+name), after
		case wordByte(c):
			end := 1
			for end < len(rest) && wordByte(rest[end]) {
				end++
			}
			word := rest[:end]
			rest = rest[end:]
			if qualified := strings.HasPrefix(rest, "."); qualified && word == "pg_catalog" {
				rest = rest[1:]
				continue
			}
			tokens = append(tokens, "name "+word)
		default:
			tokens, rest = append(tokens, rest[:1]), rest[1:]
		}
	}
	return tokens, true
}

func wordByte(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// FilterOf finds the condition for a table's rows to be in the configured shard.
func FilterOf(c postgres.Config, version int, rel *wal.Relation) (Filter, error) {
	table := wal.Table{Schema: rel.Namespace, Name: rel.Name}
	refuse := func(cause string, args ...any) error {
		return &fault.Error{
			Kind: fault.KindRefused, Reason: fault.ReasonConfiguration, Op: "divide the rows of", Subject: "table " + table.String(),
			Err: fmt.Errorf(cause, args...), Hint: "map columns.key to a column of type text, varchar, char(n), uuid, smallint, integer, bigint or numeric, or set postgres.shards: 1",
		}
	}
	placed := *rel
	placed.Table = slices.Index(c.Tables, table)
	column, err := c.Shard.Key(&placed)
	if err != nil {
		return Filter{}, err
	}
	for _, col := range rel.Columns {
		if col.Name != column {
			continue
		}
		hash, ok := hashes[col.Type]
		switch {
		case col.Type >= firstUserOID:
			return Filter{}, refuse("the key's column %q has a type that is not the server's own (a domain, an enum or an extension's), which a publication's filter may not look at", column)
		case !ok:
			return Filter{}, refuse("the type of the key's column %q (%s) has no hash function that a publication's filter may call", column, col.TypeName)
		case version < hash.since:
			return Filter{}, refuse("the type of the key's column %q (%s) has no hash function before PostgreSQL %d", column, col.TypeName, hash.since/10000)
		}
		return Filter{hash: hash.function, column: column, cast: hash.cast, Family: hash.family, count: c.Shard.Count, index: c.Shard.Index}, nil
	}
	return Filter{}, refuse("its record key comes from %q, which is not a column, and a publication's filter sees only columns", column)
}

// Filtered compares the publication's filter on a table with what makes the shard.
func (p *PublicationRow) Filtered(c postgres.Config, version int, rel *wal.Relation) error {
	want, err := FilterOf(c, version, rel)
	if err != nil {
		return err
	}
	table := wal.Table{Schema: rel.Namespace, Name: rel.Name}
	shown := p.Tables[table].Filter
	if want.is(shown) {
		return nil
	}
	cause := fmt.Errorf("its row filter on %s is %q, and shard %d of %d has the rows with %s", table, shown, want.index, want.count, want.SQL())
	if shown == "" {
		cause = fmt.Errorf("it has no row filter on %s, and shard %d of %d has the rows with %s", table, want.index, want.count, want.SQL())
	}
	return &fault.Error{
		Kind: fault.KindRefused, Reason: fault.ReasonShards, Op: "look at", Subject: postgres.PublicationSubject(p.Name), Err: cause,
		Hint: "find out who changed it, and which rows were omitted or sent twice; `cdc-relay teardown` and `cdc-relay setup` recreate slots and publications",
	}
}

// NeedsFilters refuses a server without row filters.
func NeedsFilters(version int) error {
	if version >= shardVersion {
		return nil
	}
	return &fault.Error{
		Kind: fault.KindRefused, Reason: fault.ReasonServerVersion, Op: "divide the rows",
		Err: fmt.Errorf("PostgreSQL %d has no row filters in publications; version 15 and later have", version/10000), Hint: "set postgres.shards: 1, or upgrade the server",
	}
}
