package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// table is an inbox in memory, for one transaction.
type table struct {
	claimed map[string]bool // by key; true: dead
	aborted bool
	fail    error
	queries []string
}

func (f *table) Query(_ context.Context, query string, args []any, row func(func(...any) error) error) error {
	f.queries = append(f.queries, query)
	switch {
	case f.fail != nil:
		return f.fail
	case f.aborted:
		return coded("25P02")
	case strings.HasPrefix(query, "DO"):
		f.aborted = true
		return coded("P0001")
	}
	for _, key := range elements(args[1].(string)) {
		dead, there := f.claimed[key]
		if strings.HasPrefix(query, "SELECT") {
			if there && !dead {
				_ = row(func(into ...any) error { *into[0].(*string) = key; return nil })
			}
			continue
		}
		if strings.HasPrefix(query, "INSERT") && there || strings.HasPrefix(query, "UPDATE") && (!there || !dead) {
			continue
		}
		f.claimed[key] = strings.Contains(query, ", dead)")
		if err := row(func(into ...any) error { *into[0].(*string) = key; return nil }); err != nil {
			return err
		}
	}
	return nil
}

// elements reads an array literal.
func elements(literal string) []string {
	var all []string
	var b strings.Builder
	quoted := false
	for i := 1; i < len(literal)-1; i++ {
		switch c := literal[i]; {
		case c == '\\':
			i++
			b.WriteByte(literal[i])
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			all = append(all, b.String())
			b.Reset()
		default:
			b.WriteByte(c)
		}
	}
	return append(all, b.String())
}

type coded string

func (c coded) Error() string    { return "the server said " + string(c) + ` of value "secret"` }
func (c coded) SQLState() string { return string(c) }

func newInbox(t *testing.T) *Inbox {
	t.Helper()
	b, err := New(Config{Consumer: "billing"})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOnce_RunsOnceForAKey(t *testing.T) {
	b, tx, runs := newInbox(t), &table{claimed: map[string]bool{}}, 0
	for i, want := range []Outcome{Handled, Duplicate, Duplicate} {
		got, err := b.Once(t.Context(), tx, ByID("order-events", `e"\,1`), func(context.Context) error { runs++; return nil })
		if got != want || err != nil {
			t.Errorf("delivery %d: %v, %v", i+1, got, err)
		}
	}
	if runs != 1 || tx.aborted {
		t.Errorf("%d runs, aborted %t", runs, tx.aborted)
	}
}

func TestOnce_ATransactionWhoseHandlerFailedCannotCommit(t *testing.T) {
	b := newInbox(t)
	fault := errors.New("no stock")
	tx := &table{claimed: map[string]bool{}}
	if _, err := b.Once(t.Context(), tx, ByID("t", "1"), func(context.Context) error { return fault }); !errors.Is(err, fault) || !tx.aborted {
		t.Errorf("%v, aborted %t", err, tx.aborted)
	}
	tx = &table{claimed: map[string]bool{}}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		_, _ = b.Once(t.Context(), tx, ByID("t", "1"), func(context.Context) error { panic("a bug") }) //nolint:forbidigo // what the test is about
	}()
	if !tx.aborted {
		t.Error("a panic leaves the claim")
	}
	ctx, cancel := context.WithCancel(t.Context())
	tx = &table{claimed: map[string]bool{}}
	_, _ = b.Once(ctx, tx, ByID("t", "1"), func(context.Context) error { cancel(); return context.Canceled })
	if !tx.aborted {
		t.Error("a context that ends leaves the claim")
	}
}

func TestClaim_TellsWhichAreFreshByPlace(t *testing.T) {
	b, tx := newInbox(t), &table{claimed: map[string]bool{"t/i/old": false, "t/i/dead": true}}
	keys := []Key{ByID("t", "b"), ByID("t", "old"), ByID("t", "a"), ByID("t", "b"), ByID("t", "dead"), ByIdempotencyKey("t", "a")}
	fresh, err := b.Claim(t.Context(), tx, keys)
	if want := []bool{true, false, true, false, true, true}; err != nil || !slices.Equal(fresh, want) {
		t.Errorf("%v, %v", fresh, err)
	}
	if fresh, err := b.Claim(t.Context(), tx, nil); fresh != nil || err != nil {
		t.Error(fresh, err)
	}
	if _, err := b.Claim(t.Context(), tx, []Key{ByID("t", "x"), ByID("t", "")}); !errors.Is(err, ErrNoKey) || !strings.Contains(err.Error(), "key 2") {
		t.Error(err)
	}
}

func TestBury_LetsTheKeyBeHandledAgain(t *testing.T) {
	b, tx := newInbox(t), &table{claimed: map[string]bool{}}
	if err := b.Bury(t.Context(), tx, ByID("t", "1")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if fresh, err := b.Claim(t.Context(), tx, []Key{ByID("t", "1")}); err != nil || fresh[0] != want {
			t.Errorf("%v, %v; want %t", fresh, err, want)
		}
	}
	if err := b.Bury(t.Context(), tx, Key{}); !errors.Is(err, ErrNoKey) {
		t.Error(err)
	}
}

func TestKey_OfDifferentEventsDiffer(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	seen := map[string]string{}
	for name, key := range map[string]Key{
		"id": ByID("t", "1"), "other topic": ByID("u", "1"), "idempotency key": ByIdempotencyKey("t", "1"), "slash": ByID("t", "i/1"), "scope with slash": ByID("t/i", "1"),
		"long": ByID("t", long), "longer": ByID("t", long+"x"), "zero byte": ByID("t", "a\x00"), "no UTF-8": ByID("t", "a\xff"), "other no UTF-8": ByID("t", "a\xfe"),
		"text of a hash": ByID("t", digest(long)), "space": ByID("t", " "), "quotes": ByID("t", `"}`),
	} {
		text := key.String()
		if other, twice := seen[text]; twice {
			t.Errorf("%s and %s have the key %s", name, other, text)
		}
		seen[text] = name
		if key.IsZero() || len(text) > 700 || !validText(text) {
			t.Errorf("%s: %d bytes, %.40q", name, len(text), text)
		}
		if names, _ := arrays([]Key{key, ByID("t", "2")}); !slices.Equal(elements(names), []string{text, "t/i/2"}) {
			t.Errorf("%s: the literal is %.60s", name, names)
		}
	}
	for _, key := range []Key{{}, ByID("t", ""), ByIdempotencyKey("t", "")} {
		if !key.IsZero() {
			t.Errorf("%q names an event", key)
		}
	}
}

// Records without a key have their place for one. A topic that was deleted and created again has the
// same places: a record of it is another one, and to drop it would lose it.
func TestKey_OfAPlaceTellsLogsApart(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	keys := map[string]bool{ByID("t", "3-17-1700000000123").String(): true}
	for _, key := range []Key{ByPlace("t", 3, 17, at), ByPlace("t", 3, 17, at.Add(time.Millisecond)), ByPlace("t", 3, 18, at), ByPlace("t", 31, 7, at), ByPlace("u", 3, 17, at)} {
		if key.IsZero() || keys[key.String()] {
			t.Errorf("%s is another record's", key)
		}
		keys[key.String()] = true
	}
	if ByPlace("t", 3, 17, at.In(time.FixedZone("", 3600))) != ByPlace("t", 3, 17, at) {
		t.Error("a record has two keys")
	}
}

func TestKey_TimesAreThoseGiven(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6789000, time.FixedZone("", 3600))
	if _, times := arrays([]Key{ByID("t", "1").At(at), ByID("t", "2")}); times != `{"2026-01-02T02:04:05.006789Z",NULL}` {
		t.Error(times)
	}
}

func TestNew_RefusesNamesThatAreNone(t *testing.T) {
	for _, cfg := range []Config{{}, {Consumer: strings.Repeat("x", 201)}, {Consumer: "a\x00"}, {Consumer: "a\xff"}, {Consumer: "a", Schema: strings.Repeat("x", 64)}, {Consumer: "a", Schema: "\x00"}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%.20q in %.20q is allowed", cfg.Consumer, cfg.Schema)
		}
	}
	b, err := New(Config{Consumer: "a", Schema: `odd "one"`})
	if err != nil || !strings.HasPrefix(b.claim, `INSERT INTO "odd ""one""".inbox `) {
		t.Error(err)
	}
}

func TestErrors_ShowNoValues(t *testing.T) {
	b := newInbox(t)
	for code, next := range map[string]string{"42P01": "sql --inbox", "42501": "--role", "25006": "primary", "23505": "", "22P02": "", "40001": "again"} {
		tx := &table{fail: coded(code)}
		_, err := b.Claim(t.Context(), tx, []Key{ByID("t", "secret")})
		var refused *TableError
		if !errors.As(err, &refused) || refused.Code != code || !strings.Contains(err.Error(), next) || !strings.Contains(err.Error(), `"public".inbox`) {
			t.Errorf("%s: %v", code, err)
		}
		if hidden := code[0] == '2' && code[1] != '5'; hidden && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s shows a value: %v", code, err)
		}
		if Retryable(err) != (code == "40001") {
			t.Errorf("%s: retryable is %t", code, Retryable(err))
		}
	}
	if _, err := b.Claim(t.Context(), nil, []Key{ByID("t", "1")}); !errors.Is(err, ErrNoTransaction) {
		t.Error(err)
	}
	if _, err := b.Claim(t.Context(), SQL(nil), []Key{ByID("t", "1")}); !errors.Is(err, ErrNoTransaction) {
		t.Error(err)
	}
	if _, err := b.Prune(t.Context(), &table{}, time.Now(), 0); err == nil {
		t.Error("pieces of nothing are allowed")
	}
	if text := fmt.Sprint(Handled, Duplicate, Outcome(7)); text != "handled duplicate Outcome(7)" {
		t.Error(text)
	}
}
