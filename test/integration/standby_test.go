package integration

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A second relay on the same slot stands by, is ready, and takes over.
func TestStandby_TakesOver(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		for name, end := range map[string]string{"stopped": "stop", "killed": "kill"} {
			t.Run(name, func(t *testing.T) {
				p, w := outbox(t, another(t, db), harness.Kfake(t, kfakeDefault))
				first := p.Exec(t, "run")
				w.Insert(t, 100)
				p.AwaitCaughtUp(t)
				second := p.Start(t)
				second.Await(t, "it stands by", func(s relay.Status) bool { return s.State == relay.Standby && s.Ready() })
				w.Start(t, 2, time.Millisecond)
				if end == "stop" {
					first.Terminate(t)
					if code := first.Wait(t); code != 0 {
						t.Errorf("exit code = %d", code)
					}
				} else {
					first.Kill()
				}
				began := time.Now()
				second.AwaitStreaming(t)
				t.Logf("taken over after %s", time.Since(began).Round(time.Millisecond))
				w.Stop(t)
				p.AwaitCaughtUp(t)
				second.Stop(t)
				if duplicates := w.Verify(t); end == "stop" && duplicates != 0 {
					t.Errorf("duplicates after a clean stop = %d", duplicates)
				}
			})
		}
	})
}
