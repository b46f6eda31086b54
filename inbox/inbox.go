package inbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Config is what an Inbox is made of.
type Config struct {
	// Consumer names the handler, in the table. Two handlers never share a name: what one of
	// them has handled would be a duplicate for the other. Required, 1 to 200 bytes.
	Consumer string

	// Schema has the tables of `cdc-relay sql --inbox`. Empty: public.
	Schema string

	// Hints may have seen keys before, such as a Recent or a Redis. What they say decides nothing:
	// it chooses how the table is asked. Default: none.
	Hints Hints
}

// Inbox claims keys in one table for one consumer. It is immutable, and safe for concurrent use.
type Inbox struct {
	consumer string
	table    string // quoted
	claim    string
	known    string
	revive   string
	bury     string
	prune    string
	hints    *hints
}

// maxConsumer keeps a row of the primary key below what an index of PostgreSQL takes.
const maxConsumer = 200

// New makes an Inbox. It asks no server.
func New(cfg Config) (*Inbox, error) {
	if cfg.Consumer == "" || len(cfg.Consumer) > maxConsumer || !validText(cfg.Consumer) {
		return nil, fmt.Errorf("make inbox: Consumer %q is no name; give 1 to %d bytes of UTF-8 without a zero byte", cfg.Consumer, maxConsumer)
	}
	schema, err := quoteName(cmp.Or(cfg.Schema, "public"))
	if err != nil {
		return nil, fmt.Errorf("make inbox: Schema: %w", err)
	}
	b := &Inbox{consumer: cfg.Consumer, table: schema + ".inbox"}
	// ORDER BY: two transactions that claim the same keys would deadlock in different orders.
	// The second claimant of a key waits for the first, and gets the key if that rolls back.
	b.claim = "INSERT INTO " + b.table + " (consumer, key, at) SELECT $1::text, e.key, coalesce(e.at, now())" +
		" FROM unnest($2::text[], $3::timestamptz[]) AS e(key, at) ORDER BY e.key COLLATE \"C\" ON CONFLICT DO NOTHING RETURNING key"
	b.known = "SELECT key FROM " + b.table + " WHERE consumer = $1::text AND key = ANY($2::text[]) AND NOT dead"
	// Not ON CONFLICT DO UPDATE … WHERE dead: that locks, and writes WAL for, every duplicate.
	// Its time is that of this claim: its record can come again for as long as any other.
	b.revive = "UPDATE " + b.table + " AS i SET dead = false, at = greatest(i.at, (SELECT max(coalesce(e.at, now()))" +
		" FROM unnest($2::text[], $3::timestamptz[]) AS e(key, at) WHERE e.key = i.key)) WHERE consumer = $1::text AND key = ANY($2::text[]) AND dead RETURNING key"
	b.bury = "INSERT INTO " + b.table + " (consumer, key, at, dead) SELECT $1::text, e.key, coalesce(e.at, now()), true" +
		" FROM unnest($2::text[], $3::timestamptz[]) AS e(key, at) ON CONFLICT (consumer, key) DO UPDATE SET dead = true RETURNING key"
	// The time once more: a dead key may be claimed again meanwhile, and its row is waited for.
	b.prune = "DELETE FROM " + b.table + " WHERE ctid = ANY(ARRAY(SELECT ctid FROM " + b.table +
		" WHERE consumer = $1::text AND at < $2::timestamptz LIMIT $3::int)) AND at < $2::timestamptz RETURNING 1"
	if cfg.Hints != nil {
		b.hints = &hints{Hints: cfg.Hints}
	}
	return b, nil
}

// Outcome is what Once did.
type Outcome int

// The outcomes of Once.
const (
	Handled   Outcome = iota + 1 // the function ran
	Duplicate                    // the key was claimed before; the function did not run
)

func (o Outcome) String() string {
	switch o {
	case Handled:
		return "handled"
	case Duplicate:
		return "duplicate"
	}
	return fmt.Sprintf("Outcome(%d)", int(o))
}

// Once claims a key and runs f, unless the key was claimed before. The claim is in tx: it commits
// with what f wrote, or not at all. Where another transaction has claimed the key and not ended,
// Once waits for it.
//
// After an error or a panic of f the transaction cannot commit any more: Once aborts it, because a
// claim without its work would lose the event. Roll back.
func (b *Inbox) Once(ctx context.Context, tx Tx, key Key, f func(context.Context) error) (Outcome, error) {
	fresh, err := b.Claim(ctx, tx, []Key{key})
	if err != nil {
		return 0, err
	}
	if !fresh[0] {
		return Duplicate, nil
	}
	done := false
	defer func() {
		if !done {
			b.abort(ctx, tx)
		}
	}()
	if err := f(ctx); err != nil {
		return 0, err
	}
	done = true
	return Handled, nil
}

// OnceIn runs Once in a transaction of its own, and commits it. On an error nothing was done, but
// where the error is one of the commit: then the next delivery of the event shows it.
func (b *Inbox) OnceIn(ctx context.Context, db *sql.DB, key Key, f func(context.Context, *sql.Tx) error) (Outcome, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	outcome, err := b.Once(ctx, SQL(tx), key, func(ctx context.Context) error { return f(ctx, tx) })
	if err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	b.Remember(ctx, []Key{key})
	return outcome, nil
}

// abortTimeout bounds the statement that aborts a transaction whose caller's context has ended.
const abortTimeout = 5 * time.Second

// abort makes a commit of the transaction impossible. Where the statement does not arrive, the
// connection is gone, and the transaction with it.
func (b *Inbox) abort(ctx context.Context, tx Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	_ = tx.Query(ctx, abortSQL, nil, func(func(...any) error) error { return nil }) // its error is what it is for
}

const abortSQL = `DO $$BEGIN RAISE EXCEPTION 'the handler of an event failed: its transaction must not commit'; END$$`

// Claim is Once for many: fresh tells, by place in keys, which events nobody has handled. The
// caller handles those in tx, in their order, and rolls back where one fails: a committed claim
// without its work loses the event. A key that is twice in keys is fresh once.
//
// Claim all keys of a transaction with one call: two transactions that claim the same keys in
// different orders deadlock.
func (b *Inbox) Claim(ctx context.Context, tx Tx, keys []Key) (fresh []bool, err error) {
	if tx == nil {
		return nil, ErrNoTransaction
	}
	for i := range keys {
		if keys[i].text == "" {
			return nil, fmt.Errorf("claim key %d: %w", i+1, ErrNoKey)
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	claimed, err := b.hinted(ctx, tx, keys)
	if err != nil {
		return nil, err
	}
	rest := keys
	if claimed != nil {
		rest = make([]Key, 0, len(keys))
		for i := range keys {
			if !claimed[i] {
				rest = append(rest, keys[i])
			}
		}
	}
	got := make(map[string]bool, len(rest))
	if len(rest) > 0 {
		if err := b.take(ctx, tx, rest, got); err != nil {
			return nil, err
		}
	}
	fresh = make([]bool, len(keys))
	for i := range keys {
		if got[keys[i].text] {
			fresh[i] = true
			delete(got, keys[i].text)
		}
	}
	if len(got) > 0 {
		return nil, errors.New("claim keys: the table returned a key that was not given; does a trigger change it?")
	}
	return fresh, nil
}

// take claims keys, and adds to got those that were nobody's.
func (b *Inbox) take(ctx context.Context, tx Tx, keys []Key, got map[string]bool) error {
	names, times := arrays(keys)
	collect := func(scan func(...any) error) error {
		var key string
		err := scan(&key)
		got[key] = true
		return err
	}
	if err := tx.Query(ctx, b.claim, []any{b.consumer, names, times}, collect); err != nil {
		return b.explained("claim keys", err)
	}
	if len(got) < len(keys) {
		// A key that is dead is claimed again: its dead letter was sent again.
		if err := tx.Query(ctx, b.revive, []any{b.consumer, names, times}, collect); err != nil {
			return b.explained("claim keys", err)
		}
	}
	return nil
}

// Known reports, by place in keys, which are claimed, and claims none. It waits for no transaction
// that has not ended, so a key that is not known may be another's already: claim it.
func (b *Inbox) Known(ctx context.Context, tx Tx, keys []Key) ([]bool, error) {
	if tx == nil {
		return nil, ErrNoTransaction
	}
	if len(keys) == 0 {
		return nil, nil
	}
	names, _ := arrays(keys)
	there := make(map[string]bool, len(keys))
	err := tx.Query(ctx, b.known, []any{b.consumer, names}, func(scan func(...any) error) error {
		var key string
		err := scan(&key)
		there[key] = true
		return err
	})
	if err != nil {
		return nil, b.explained("look keys up", err)
	}
	known := make([]bool, len(keys))
	for i := range keys {
		known[i] = there[keys[i].text]
	}
	return known, nil
}

// Bury claims a key without its work, for an event that became a dead letter. The key counts as
// claimed no more: a record with it, such as the dead letter when it is sent again, is handled.
func (b *Inbox) Bury(ctx context.Context, tx Tx, key Key) error {
	if tx == nil {
		return ErrNoTransaction
	}
	if key.text == "" {
		return ErrNoKey
	}
	names, times := arrays([]Key{key})
	err := tx.Query(ctx, b.bury, []any{b.consumer, names, times}, func(func(...any) error) error { return nil })
	return b.explained("mark key as dead", err)
}

// Prune deletes keys that were claimed before a time, most of them at a call, and returns how many
// there were. Call it in a transaction of its own until it returns less than most.
//
// An event whose key is gone is handled again when it comes again. See Key.At for the clock.
func (b *Inbox) Prune(ctx context.Context, tx Tx, before time.Time, most int) (int, error) {
	if tx == nil {
		return 0, ErrNoTransaction
	}
	if most < 1 {
		return 0, fmt.Errorf("prune keys: %d at a call are none; give 1 or more", most)
	}
	n := 0
	err := tx.Query(ctx, b.prune, []any{b.consumer, before.UTC().Format(timeFormat), most}, func(func(...any) error) error {
		n++
		return nil
	})
	return n, b.explained("prune keys", err)
}

func quoteName(name string) (string, error) {
	if name == "" || len(name) > 63 || !validText(name) {
		return "", fmt.Errorf("%q is no name; allowed: 1 to 63 bytes of UTF-8 without a zero byte", name)
	}
	quoted := []byte{'"'}
	for i := range len(name) {
		if name[i] == '"' {
			quoted = append(quoted, '"')
		}
		quoted = append(quoted, name[i])
	}
	return string(append(quoted, '"')), nil
}

// validText reports whether PostgreSQL takes s as text.
func validText(s string) bool {
	for i := range len(s) {
		if s[i] == 0 {
			return false
		}
	}
	return utf8.ValidString(s)
}
