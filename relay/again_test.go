package relay

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

// A session that ends to have its rows read in another way begins at once, but not for ever.
func TestRelay_PausesAfterSessionsThatBeganAtOnceInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sessions := 0
		routes := outboxRoutes(t)
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
