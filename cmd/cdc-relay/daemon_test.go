package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/upkeep"
	"github.com/rs/zerolog"
)

// endingRelay is a relay that ends by itself.
type endingRelay struct{ err error }

func (r endingRelay) Run(context.Context) error { return r.err }
func (endingRelay) Abort()                      {}
func (endingRelay) Status() status.Status       { return status.Status{} }
func (endingRelay) AlreadySentRows() int64      { return 0 }
func (endingRelay) TryNow() bool                { return false }

// A relay that ends by itself takes its jobs with it: a process that stays would be restarted by
// no supervisor, and would stream nothing.
func TestDaemon_EndsWithARelayThatEndsByItself(t *testing.T) {
	failed := errors.New("blocked")
	job := upkeep.NewLoop(upkeep.Beside{Job: "mark", Tables: []upkeep.Table{{Name: "public.outbox"}}, Every: time.Second},
		func() (bool, string) { return false, "" }, zerolog.Nop())
	a := new(app)
	d := &daemon{app: a, cfg: &config.Config{}, relay: endingRelay{failed}, jobs: []*upkeep.Loop{job}, log: zerolog.Nop(), notify: a.notifier()}
	ended := make(chan error, 1)
	go func() { ended <- d.stream(t.Context()) }()
	select {
	case err := <-ended:
		if !errors.Is(err, failed) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the process goes on without its relay")
	}
}
