package main

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter/overtaken"
)

// warnOfLetters looks once, when the brokers answer, for dead letters that the relay overtakes with
// later rows of their keys.
func (d *daemon) warnOfLetters(ctx context.Context) {
	for {
		found, _, err := overtaken.ReadLetters(ctx, d.cfg.Relay())
		for _, f := range found {
			d.log.Warn().Msg(f.Seen() + "; " + f.Next())
		}
		if err == nil {
			return
		}
		d.log.Debug().Err(err).Msg("cannot look for dead letters of parked keys yet")
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Minute):
		}
	}
}
