package relay

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

func TestOlderTypes_AreReadAsTextUntilTheStartIsPastThem(t *testing.T) {
	var o olderTypes
	look := func(from, end wal.LSN, want bool) {
		t.Helper()
		if got := o.ahead(from, end); got != want {
			t.Fatalf("a session from %s, with WAL up to %s: %t, want %t", from, end, got, want)
		}
	}
	look(0x10, 0x90, false)
	o.met()
	look(0x20, 0x90, true)
	look(0x80, 0x200, true) // the end is that of the first session behind it
	look(0x90, 0x300, false)
	look(0x20, 0x300, false) // the slot went back: the row is met again
	o.met()
	look(0x20, 0x300, true)
	look(0x300, 0x300, false)
	o.met()
	look(0x300, 0x300, true) // the first session behind it in any case
}

// A session that ends to have its rows read in another way begins at once, but not for ever.
func TestRelay_PausesAfterSessionsThatBeganAtOnceInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sessions := 0
		routes, err := router.New(router.Config{Mappings: []router.Mapping{{Table: "public.outbox", Preset: "outbox"}}})
		if err != nil {
			t.Fatal(err)
		}
		r := New(Config{}, Parts{Source: func(context.Context) (Source, error) {
			if sessions++; sessions > 1000 { // without the bound they would stop the clock
				return nil, &fault.Error{Kind: fault.KindRefused, Op: "start", Err: errors.New("enough")}
			}
			return nil, fmt.Errorf("read row: %w", record.ErrBinary)
		}, Router: routes, Sink: func() (sink.Sink, error) { return new(sinktest.Recorder), nil }}, Events{}, zerolog.Nop())
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- r.Run(ctx) }()
		pass(time.Minute)
		cancel()
		<-result
		if sessions < maxAtOnce+2 || sessions > 2*maxAtOnce {
			t.Errorf("%d sessions in a minute", sessions)
		}
	})
}
