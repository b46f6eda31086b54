package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"
)

// Plan is one run: everything that is chosen, and nothing that happens. The same
// seed and options make the same plan; a stored one is run again as it is.
type Plan struct {
	Seed        uint64   `json:"seed"`
	Postgres    string   `json:"postgres"` // major version
	Broker      string   `json:"broker"`   // kfake, apache, apache3
	Duration    Span     `json:"duration"`
	Relays      int      `json:"relays"`
	Writers     int      `json:"writers"`
	Pause       Span     `json:"pause"`          // at most, between two transactions of a writer
	Large       int      `json:"large"`          // rows of a large transaction
	Huge        int      `json:"huge,omitempty"` // rows of one transaction; 0: there is none
	HugeAt      Span     `json:"huge_at,omitempty"`
	ExactlyOnce bool     `json:"exactly_once,omitempty"`
	Letters     *Letters `json:"letters,omitempty"`  // nil: rows are not set aside
	Registry    bool     `json:"registry,omitempty"` // rows are encoded
	Jobs        *Jobs    `json:"jobs,omitempty"`     // nil: rows stay as they are
	Patience    Span     `json:"patience,omitempty"` // how long a fault waits for the recovery from the one before it; 0: not at all
	Partitioned bool     `json:"partitioned"`
	Settings    []string `json:"settings"` // --set of the relay
	Actions     []Action `json:"actions"`
}

// Action is one fault at one moment.
type Action struct {
	Kind string `json:"kind"`
	At   Span   `json:"at"`
	For  Span   `json:"for"`
	N    uint64 `json:"n"` // what the kind draws its details from
}

// Span is a duration that JSON shows as 1.5s.
type Span time.Duration

// MarshalText is that of time.Duration's notation.
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText reads time.Duration's notation.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*s = Span(d)
	return err
}

func (s Span) String() string { return time.Duration(s).String() }

// Options are what a user chooses; the seed chooses the rest.
type Options struct {
	Duration  time.Duration
	Faults    []string // names or prefixes; none is all that the brokers can have
	Postgres  string
	Broker    string
	Gap       time.Duration // between actions, on average
	Large     int
	Huge      int    // rows of the transaction that one seed in eight has
	Guarantee string // empty: at_least_once
}

// NewPlan draws a plan from a seed. Seeds that follow one another deal the kinds
// out between them like cards, so that a few seeds bring every kind.
func NewPlan(seed uint64, o Options) (Plan, error) {
	random := rand.New(rand.NewPCG(seed, 0x5eed))
	p := Plan{
		Seed: seed, Postgres: o.Postgres, Broker: o.Broker, Duration: Span(o.Duration),
		Writers: 2 + random.IntN(3), Pause: Span(time.Duration(10+random.IntN(60)) * time.Millisecond),
		Partitioned: random.IntN(4) == 0, Large: max(o.Large, 1), Relays: 1 + random.IntN(2),
		Settings: []string{"kafka.compression=" + []string{"none", "snappy", "zstd"}[random.IntN(3)]},
	}
	if n := random.IntN(8); n < 2 { // the other seeds have what adapts by itself
		p.Settings = append(p.Settings, "kafka.linger="+[]string{"0s", "5ms"}[n])
	}
	p.Settings = append(p.Settings, "relay.max_in_flight_bytes="+[]string{"64KiB", "512KiB", "8MiB"}[random.IntN(3)], "relay.drain_timeout=15s")
	p.ExactlyOnce = o.Guarantee == exactlyOnce || o.Guarantee == mixed && mixedIsOnce(seed)
	if seed%8 == 5 {
		p.Huge, p.HugeAt = o.Huge, p.Duration/4
	}
	deck, err := applicable(o.Faults, o.Broker, p.ExactlyOnce)
	if err != nil {
		return p, err
	}
	gap := o.Gap
	if gap <= 0 {
		gap = 2 * time.Second
	}
	n := max(1, int(o.Duration/gap))
	at, dealt := time.Duration(0), p.deal(deck, n, len(o.Faults) > 0)
	random.Shuffle(n, func(i, j int) { dealt[i], dealt[j] = dealt[j], dealt[i] })
	for _, k := range dealt {
		if k.jobs && p.Jobs == nil {
			p.Jobs = newJobs(seed)
			if k.then != "" {
				p.Jobs.Then = k.then
			}
		}
		p.Registry = p.Registry || k.registry
		p.Relays = max(p.Relays, k.relays)
		lasts := k.least
		if k.most > k.least {
			lasts += time.Duration(random.Int64N(int64(k.most - k.least)))
		}
		at += time.Duration(random.Int64N(int64(2 * gap)))
		p.Actions = append(p.Actions, Action{Kind: k.name, At: Span(at.Round(time.Millisecond)), For: Span(lasts.Round(time.Millisecond)), N: random.Uint64()})
	}
	return p, nil
}

// deal takes n kinds from the deck. Rows are set aside in one seed of three, whose cards
// are dead letters' by a third, or where such kinds were asked for: a relay that blocks
// at a refused row is another one. Records that were set aside are not taken away, nor encoded.
func (p *Plan) deal(deck []*kind, n int, chosen bool) []*kind {
	var letters, others []*kind
	for _, k := range deck {
		if k.letters {
			letters = append(letters, k)
		}
	}
	lettered := len(letters) > 0 && (chosen || p.Seed%3 == 1)
	for _, k := range deck {
		if !k.letters && (!lettered || !k.unsettles && !k.registry) {
			others = append(others, k)
		}
	}
	if lettered {
		random := rand.New(rand.NewPCG(p.Seed, 0x1e77e5))
		p.Letters = &Letters{ParkKey: random.IntN(3) > 0, Leave: random.IntN(3) == 0}
		// A redrive reads and sends all that waits, and every fault here has one or more.
		p.Writers, p.Pause, p.Large, p.Huge = 2, Span(time.Duration(100+random.IntN(100))*time.Millisecond), min(p.Large, 500), 0
	}
	rank := p.Seed // among the seeds that deal alike: one that leaves some out in turn would never come to some cards
	switch {
	case len(letters) == 0 || chosen:
	case lettered:
		rank = p.Seed / 3
	default:
		rank = p.Seed - (p.Seed+1)/3
	}
	dealt := make([]*kind, n)
	for i := range dealt {
		card := int(rank%uint64(len(deck)))*n + i
		switch {
		case len(others) == 0:
			dealt[i] = letters[card%len(letters)]
		case lettered && i%3 == 0:
			dealt[i] = letters[(int(p.Seed/3%uint64(len(letters)))*((n+2)/3)+i/3)%len(letters)]
		default:
			dealt[i] = others[card%len(others)]
		}
	}
	return dealt
}

func mixedIsOnce(seed uint64) bool { return seed%4 == 3 }

// applicable are the kinds that were asked for and that such brokers can have, in
// a fixed shuffled order.
func applicable(faults []string, broker string, once bool) ([]*kind, error) {
	var deck []*kind
	for _, name := range faults {
		if !slices.ContainsFunc(kinds, func(k *kind) bool { return matches(k.name, name) }) {
			return nil, fmt.Errorf("no kind of fault is called %q; -list shows them", name)
		}
	}
	for _, k := range kinds {
		wanted := len(faults) == 0 || slices.ContainsFunc(faults, func(name string) bool { return matches(k.name, name) })
		if k.jobs && len(faults) == 0 {
			continue
		}
		if wanted && k.fits(broker) && (!once || !k.unsettles) {
			deck = append(deck, k)
		}
	}
	if len(deck) == 0 {
		return nil, fmt.Errorf("none of %s can be had with %s", strings.Join(faults, ", "), broker)
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck, nil
}

func matches(kind, name string) bool {
	prefix, all := strings.CutSuffix(name, "*")
	return kind == name || all && strings.HasPrefix(kind, prefix)
}

// String is the plan as a person reads it.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: PostgreSQL %s, %s, %s, %d relays, %d writers, %s\n",
		p.Seed, p.Postgres, p.Broker, p.Duration, p.Relays, p.Writers, strings.Join(p.Settings, " "))
	for _, a := range p.Actions {
		fmt.Fprintf(&b, "  %8s  %-26s for %s\n", a.At, a.Kind, a.For)
	}
	return b.String()
}

func (p Plan) store(file string) error {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

func loadPlan(file string) (Plan, error) {
	var p Plan
	text, err := os.ReadFile(file)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("%s: %w", file, err)
	}
	for _, a := range p.Actions {
		if kindNamed(a.Kind) == nil {
			return p, fmt.Errorf("%s: no kind of fault is called %q", file, a.Kind)
		}
	}
	return p, nil
}
