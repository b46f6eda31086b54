package snapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/cdc-relay/cdc-relay/postgres"
)

// Constant refuses a condition of the operator's that means other rows in each transaction, or may: every
// reader has its own, and what is interrupted goes on in another.
func (h *Holder) Constant(ctx context.Context, s *Selection) error {
	what, next, err := h.Changing(ctx, s)
	if err == nil && what != "" {
		err = &SQLError{s.Name, fmt.Errorf("the condition has %s, whose value is another one in each transaction: %s", what, next)}
	}
	return err
}

// Changing is what a selection's condition has in it that the server gives another value later, or may, and what
// to write instead; empty: nothing that is known.
func (h *Holder) Changing(ctx context.Context, s *Selection) (what, next string, err error) {
	if what = Changing(s.Where); what != "" {
		return what, "write the value as a constant, such as '2026-01-31 08:00:00+00'", nil
	}
	name, err := h.callsOwn(ctx, s)
	if err != nil || name == "" {
		return "", "", err
	}
	return "function " + name + ", which is not IMMUTABLE", "write what it gives as constants, or declare it IMMUTABLE if that depends on nothing but its arguments", nil
}

// callsOwn names a function of a condition that is not the server's own and may give another value later;
// empty: there is none. Without its schema no such function is found.
func (h *Holder) callsOwn(ctx context.Context, s *Selection) (name string, err error) {
	called := called(tokensOf(s.Where))
	if len(called) == 0 {
		return "", nil
	}
	err = h.Ask(ctx, func(q postgres.Querier, _ int) error {
		rows, err := q.All(fmt.Sprintf(`SELECT pg_catalog.format('%%I.%%I()', n.nspname, p.proname) FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
			WHERE p.oid >= 16384 AND p.provolatile <> 'i' AND (n.nspname, p.proname) IN (%s) ORDER BY 1 LIMIT 1`, strings.Join(called, ", ")))
		if err != nil || len(rows) == 0 {
			return postgres.Classify("look at the functions of a condition", err)
		}
		name = rows[0][0].Text
		return nil
	})
	return name, err
}

// called are the functions that are named with their schemas, as rows of SQL.
func called(tokens []string) (list []string) {
	for i := 2; i+1 < len(tokens); i++ {
		schema, name := identifier(tokens[i-2]), identifier(tokens[i])
		if tokens[i-1] == "." && tokens[i+1] == "(" && schema != "" && name != "" {
			list = append(list, fmt.Sprintf("(%s, %s)", postgres.QuoteLiteral(schema), postgres.QuoteLiteral(name)))
		}
	}
	return list
}

// identifier is what a token names; empty: it is no name.
func identifier(token string) string {
	if token[0] == '"' {
		return strings.ReplaceAll(token[1:len(token)-1], `""`, `"`)
	}
	if first := rune(token[0]); first == '_' || first >= 0x80 || unicode.IsLetter(first) {
		return strings.ToLower(token)
	}
	return ""
}

// tokensOf are those of a condition that mean something; none, if the server refuses it.
func tokensOf(condition string) (tokens []string) {
	for rest := condition; rest != ""; {
		n, err := postgres.SQLToken(rest)
		if err != nil {
			return nil
		}
		t := rest[:n]
		if rest = rest[n:]; strings.TrimSpace(t) != "" && !strings.HasPrefix(t, "--") && !strings.HasPrefix(t, "/*") {
			tokens = append(tokens, t)
		}
	}
	return tokens
}

// Changing is what a condition has in it, by its words, that the server gives another value later;
// empty: nothing that is known. What a function of the operator's own does is not.
func Changing(condition string) string {
	tokens := tokensOf(condition)
	for i, t := range tokens {
		name := strings.ToLower(t)
		switch {
		case t[0] == '"':
			name = strings.Trim(t, `"`)
		case strings.HasSuffix(t, "'") || len(t) > 1 && t[0] == '$':
			before := strings.Join(tokens[max(0, i-3):i], "")
			member := strings.HasSuffix(before, "->") || strings.HasSuffix(before, "->>") // of JSON
			if word := moment(t); word != "" && !member {
				return "'" + word + "'"
			}
			continue
		case slices.Contains(changingWords, name) && (i == 0 || tokens[i-1] != "."):
			return name
		}
		if i+1 < len(tokens) && tokens[i+1] == "(" && (slices.Contains(changingFunctions, name) || name == "age" && single(tokens[i+1:])) {
			return name + "()"
		}
	}
	return ""
}

var (
	changingWords     = []string{"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "tablesample"}
	changingFunctions = []string{
		"now", "transaction_timestamp", "statement_timestamp", "clock_timestamp", "timeofday",
		"random", "random_normal", "gen_random_uuid", "gen_random_bytes", "uuidv4", "uuidv7", "uuid_generate_v1", "uuid_generate_v1mc", "uuid_generate_v4",
		"txid_current", "txid_current_if_assigned", "txid_current_snapshot", "pg_current_xact_id", "pg_current_xact_id_if_assigned", "pg_current_snapshot",
		"pg_current_wal_lsn", "pg_current_wal_insert_lsn", "pg_current_wal_flush_lsn", "nextval", "currval", "lastval",
		"pg_backend_pid", "pg_postmaster_start_time", "pg_conf_load_time",
	}
	moments = []string{"now", "today", "tomorrow", "yesterday"}
)

// single reports whether a call, from its parenthesis on, has one argument: age is then that of today.
func single(tokens []string) bool {
	depth := 0
	for _, t := range tokens {
		switch t {
		case "(", "[":
			depth++
		case ")", "]":
			if depth--; depth == 0 {
				return true
			}
		case ",":
			if depth == 1 {
				return false
			}
		}
	}
	return true
}

// moment is the word in a literal by which it is a time that depends on the present one, such as
// today in 'today 08:00'; empty: it is no such time, and may be a text with the word in it.
func moment(literal string) (word string) {
	if literal[0] == '$' {
		tag := literal[:strings.IndexByte(literal[1:], '$')+2]
		literal = strings.TrimSuffix(strings.TrimPrefix(literal, tag), tag)
	} else {
		literal = strings.TrimSuffix(literal[strings.IndexByte(literal, '\'')+1:], "'")
	}
	for _, f := range strings.FieldsFunc(literal, func(c rune) bool { return strings.ContainsRune(" \t\r\n\f\v,", c) }) {
		lower := strings.ToLower(f)
		switch {
		case slices.Contains(moments, lower):
			word = lower
		case strings.ContainsAny(f[:1], "0123456789+-:"), strings.Contains(f, "/"): // a time, or a zone
		case len(f) <= 5 && f == strings.ToUpper(f), slices.Contains([]string{"am", "pm", "at", "z", "utc", "gmt", "zulu", "allballs"}, lower):
		default:
			return ""
		}
	}
	return word
}
