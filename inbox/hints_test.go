package inbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// liar answers what it likes.
type liar struct {
	seen  func(key string) bool
	wait  time.Duration
	err   error
	add   error
	added []string
	calls int
}

func (l *liar) Seen(ctx context.Context, keys []Key) ([]bool, error) {
	l.calls++
	if l.wait > 0 {
		<-time.After(l.wait) // it does not look at ctx
	}
	if l.err != nil {
		return nil, l.err
	}
	all := make([]bool, len(keys))
	for i := range keys {
		all[i] = l.seen(keys[i].String())
	}
	return all, nil
}

func (l *liar) Add(_ context.Context, keys []Key) error {
	for _, key := range keys {
		l.added = append(l.added, key.String())
	}
	return l.add
}

// Whatever hints say, the same keys are fresh.
func TestHints_DecideNothing(t *testing.T) {
	for name, hints := range map[string]func(claimed map[string]bool) Hints{
		"none":       func(map[string]bool) Hints { return nil },
		"yes to all": func(map[string]bool) Hints { return &liar{seen: func(string) bool { return true }} },
		"no to all":  func(map[string]bool) Hints { return &liar{seen: func(string) bool { return false }} },
		"the truth": func(c map[string]bool) Hints {
			return &liar{seen: func(k string) bool { dead, is := c[k]; return is && !dead }}
		},
		"the opposite": func(c map[string]bool) Hints {
			return &liar{seen: func(k string) bool { dead, is := c[k]; return !is || dead }}
		},
		"by chance":      func(map[string]bool) Hints { return &liar{seen: func(string) bool { return rand.IntN(2) == 0 }} },
		"down":           func(map[string]bool) Hints { return &liar{err: errors.New("down"), add: errors.New("down")} },
		"stuck":          func(map[string]bool) Hints { return &liar{wait: time.Hour, seen: func(string) bool { return true }} },
		"recent":         func(map[string]bool) Hints { return Recent(3) },
		"answers short":  func(map[string]bool) Hints { return short{} },
		"answers longer": func(map[string]bool) Hints { return long{} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				claimed := map[string]bool{}
				b, err := New(Config{Consumer: "billing", Hints: hints(claimed)})
				if err != nil {
					t.Fatal(err)
				}
				random := rand.New(rand.NewPCG(1, 2))
				want, tx := map[string]bool{}, &table{claimed: claimed}
				for range 60 {
					var keys []Key
					var expected []bool
					for range 1 + random.IntN(5) {
						key := ByID("t", fmt.Sprint(random.IntN(30)))
						keys, expected = append(keys, key), append(expected, !want[key.String()])
						want[key.String()] = true
					}
					fresh, err := b.Claim(t.Context(), tx, keys)
					if err != nil || !slices.Equal(fresh, expected) {
						t.Fatalf("%v, %v; want %v", fresh, err, expected)
					}
					b.Remember(t.Context(), keys)
					if dead := keys[0]; random.IntN(4) == 0 { // it became a dead letter, and comes again
						if err := b.Bury(t.Context(), tx, dead); err != nil {
							t.Fatal(err)
						}
						claimed[dead.String()], want[dead.String()] = true, false
					}
				}
				<-time.After(2 * time.Hour) // for a call that was left behind
			})
		})
	}
}

type short struct{}

func (short) Seen(context.Context, []Key) ([]bool, error) { return nil, nil }
func (short) Add(context.Context, []Key) error            { return nil }

type long struct{}

func (long) Seen(_ context.Context, keys []Key) ([]bool, error) {
	return make([]bool, 2*len(keys)), nil
}
func (long) Add(context.Context, []Key) error { return nil }

// Hints that fail are not asked for a while.
func TestHints_ThatFailAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := &liar{err: errors.New("down")}
		b, err := New(Config{Consumer: "billing", Hints: down})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if _, err := b.Claim(t.Context(), &table{claimed: map[string]bool{}}, []Key{ByID("t", fmt.Sprint(i))}); err != nil {
				t.Fatal(err)
			}
			b.Remember(t.Context(), []Key{ByID("t", fmt.Sprint(i))})
		}
		if down.calls != 1 || len(down.added) != 0 {
			t.Errorf("%d questions, %d told", down.calls, len(down.added))
		}
	})
}

// late answers when its caller has gone on.
type late struct {
	on   chan struct{}
	read chan string
}

func (l late) Seen(_ context.Context, keys []Key) ([]bool, error) { return nil, l.Add(nil, keys) } //nolint:staticcheck // it looks at no context

func (l late) Add(_ context.Context, keys []Key) error {
	<-l.on
	l.read <- keys[0].String()
	return nil
}

// A call that is left behind does not read keys that the caller has back, and may change.
func TestHints_ThatAreLeftBehindHaveKeysOfTheirOwn(t *testing.T) {
	for name, call := range map[string]func(b *Inbox, keys []Key) error{
		"claim": func(b *Inbox, keys []Key) error {
			_, err := b.Claim(context.Background(), &table{claimed: map[string]bool{}}, keys)
			return err
		},
		"remember": func(b *Inbox, keys []Key) error { b.Remember(context.Background(), keys); return nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			l := late{make(chan struct{}), make(chan string, 1)}
			b, err := New(Config{Consumer: "billing", Hints: l})
			if err != nil {
				t.Fatal(err)
			}
			keys := []Key{ByID("t", "1")}
			if err := call(b, keys); err != nil {
				t.Fatal(err)
			}
			keys[0] = ByID("t", "2")
			close(l.on)
			if got := <-l.read; got != "t/i/1" {
				t.Errorf("%s: it reads %s", name, got)
			}
		})
	}
}

func TestRecent_ForgetsTheOldest(t *testing.T) {
	r := Recent(2)
	keys := []Key{ByID("t", "1"), ByID("t", "2"), ByID("t", "2"), ByID("t", "3")}
	if err := r.Add(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	seen, err := r.Seen(t.Context(), keys)
	if err != nil || !slices.Equal(seen, []bool{false, true, true, true}) {
		t.Errorf("%v, %v", seen, err)
	}
}
