package cutover

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/backfill"
	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
)

// Whatever a call left, the next one goes on where rows have one sender, or refuses.
func TestDecide_GoesOnWhereverItWasInterrupted(t *testing.T) {
	cut := func(change ...func(*catalog.Cut)) []*catalog.Cut {
		c := &catalog.Cut{At: 100, System: "7", Slot: "s"}
		for _, f := range change {
			f(c)
		}
		return []*catalog.Cut{c}
	}
	there, gone := progress.Slot{Name: "s_cutover", Exists: true, Confirmed: 50}, progress.Slot{Name: "s_cutover"}
	at := there
	at.Confirmed = 100
	ahead, active, broken := there, there, there
	ahead.Confirmed, active.Active, broken.Err = 101, true, errors.New("slot is lost")
	final := []progress.Slot{{Name: "s", Exists: true, Confirmed: 100}}
	none := []progress.Slot{{Name: "s"}}
	behind, later := []progress.Slot{{Name: "s", Exists: true, Confirmed: 40}}, []progress.Slot{{Name: "s", Exists: true, Confirmed: 150}}
	streamed := []progress.Slot{{Name: "s", Exists: true, Confirmed: 150, Ours: true}}
	mixed := []progress.Slot{final[0], later[0]}
	one, two := []progress.Slot{final[0], none[0]}, []*catalog.Cut{cut()[0], nil}
	for name, tt := range map[string]struct {
		temporary progress.Slot
		final     []progress.Slot
		cuts      []*catalog.Cut
		want      step
		says      string
	}{
		"nothing":               {gone, none, []*catalog.Cut{nil}, begin, ""},
		"slot":                  {there, none, []*catalog.Cut{nil}, trigger, ""},
		"slot lost":             {broken, none, []*catalog.Cut{nil}, anew, ""},
		"trigger":               {there, none, cut(), wait, ""},
		"advanced":              {at, none, cut(), finish, ""},
		"one copied":            {at, one, cut(), finish, ""},
		"copied":                {at, final, cut(), finish, ""},
		"copied by somebody":    {at, later, cut(), "", "nothing shows that it made this one"},
		"copied, streamed from": {at, streamed, cut(), finish, ""},
		"dropped":               {gone, final, cut(), complete, ""},
		"somebody's slot":       {gone, final, []*catalog.Cut{nil}, "", "a relay may have streamed"},
		"and ours":              {there, final, []*catalog.Cut{nil}, "", "a relay may have streamed"},
		"taken back":            {there, final, cut(), wait, ""},
		"one copied, and so":    {there, one, cut(), wait, ""},
		"streamed from, and so": {there, streamed, cut(), wait, ""},
		"lost, all are copied":  {broken, final, cut(), finish, ""},
		"lost, one is copied":   {broken, one, cut(), "", "nobody has sent them"},
		"made before the cut":   {there, behind, cut(), "", "did not make it"},
		"made by somebody":      {there, later, cut(), "", "nothing shows that it made this one"},
		"one by somebody":       {there, mixed, cut(), "", "nothing shows that it made this one"},
		"lost, and by somebody": {broken, later, cut(), "", "nothing shows that it made this one"},
		"in use":                {active, none, cut(), "", "somebody streams from it"},
		"lost after the cut":    {broken, none, cut(), "", "nobody has sent them"},
		"gone after the cut":    {gone, none, cut(), "", "nobody has sent them"},
		"one gone":              {gone, one, cut(), "", "nobody has sent them"},
		"moved":                 {ahead, none, cut(), "", "somebody moved it"},
		"trigger of a copy":     {there, none, cut(func(c *catalog.Cut) { c.System = "8" }), "", "came with a copy"},
		"trigger of another":    {there, none, cut(func(c *catalog.Cut) { c.Slot = "t" }), "", `to slot "t"`},
		"gone back":             {gone, final, cut(func(c *catalog.Cut) { c.Off = true }), "", "the way back was taken"},
		"a table was added":     {there, none, two, "", "1 of 2 tables"},
		"a table of another":    {there, none, []*catalog.Cut{cut()[0], cut(func(c *catalog.Cut) { c.At = 99 })[0]}, "", "not of one cutover"},
		"another, first absent": {there, none, []*catalog.Cut{nil, cut()[0]}, "", "1 of 2 tables"},
		"half gone back":        {gone, final, []*catalog.Cut{nil, cut(func(c *catalog.Cut) { c.Off = true })[0]}, "", "the way back was taken"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state{system: "7", slot: "s", temporary: tt.temporary, final: tt.final, cuts: tt.cuts}
			if name == "in use" {
				tt.says = "somebody streams from"
			}
			got, err := s.decide()
			if got != tt.want || (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%q, %v; want %q, %q", got, err, tt.want, tt.says)
			}
			s.backfill = true
			if _, err := s.decide(); err == nil {
				t.Error("it goes on beside a backfill")
			}
		})
	}
}

func TestParseCut_ReadsWhatItWrote(t *testing.T) {
	c := &catalog.Cut{At: 0x16B3748, System: "7423", Slot: "cdc_relay"}
	got, err := catalog.ParseCut(c.String())
	if err != nil || got.At != c.At || got.System != c.System || got.Slot != c.Slot {
		t.Errorf("%+v, %v", got, err)
	}
	c.As = "00f3"
	if got, err := catalog.ParseCut(c.String()); err != nil || got.As != c.As || got.Slot != c.Slot || !strings.HasSuffix(c.String(), " published as 00f3") {
		t.Errorf("%q gives %+v, %v", c, got, err)
	}
	c.As = ""
	for _, text := range []string{"", "somebody's words", strings.Replace(c.String(), "/16B", "/xyz", 1), strings.Replace(c.String(), " on ", " at ", 1), c.String() + "x"} {
		if got, err := catalog.ParseCut(text); err == nil {
			t.Errorf("%q gives %+v", text, got)
		}
	}
}

// The plan waits for brokers that do not answer, and says so.
func TestCutover_SaysThatItWaitsForBrokers(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and nobody answers on them
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said := make(chan string, 1)
	w := &work{Cutover: &Cutover{Out: backfill.Output{Meanwhile: writerFunc(func(p []byte) { said <- string(p); cancel() })}}}
	w.Settings.DetectMovedSlot, w.Settings.CheckpointTopic = true, "positions"
	w.Settings.Kafka.Brokers = []string{silent.Addr().String()}
	w.state.final = []progress.Slot{{Name: "s"}}
	if err := w.unused(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("nothing was said: %v", err)
	}
	if text := <-said; text != "waiting up to 10s for the brokers, to read topic \"positions\"\n" {
		t.Errorf("said %q", text)
	}
}

type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }
