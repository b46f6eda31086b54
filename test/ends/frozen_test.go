package ends

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// A member that is frozen within a round has its partition go to another one, which waits for the
// locks of that round: it says so, and whose they are. It neither passes over the records nor handles
// one twice, whether the transaction is ended or committed at last.
func TestFrozen_MemberHoldsLocksAndIsReported(t *testing.T) {
	t.Parallel()
	for i, way := range []string{"one at a time", "parallel", "offsets"} {
		for j, end := range []string{"terminated", "continued"} {
			if harness.Left(i, j) {
				continue
			}
			t.Run(way+" "+end, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, harness.Postgres(t), harness.Kfake(t, shortSessions), 1)
				s.produce(t, 30, 3)
				cfg := s.config()
				ways[way](&cfg)
				s.unique = cfg.Offsets
				one := s.child("", 0, max(cfg.Parallel, 1))
				one.Offsets, one.Frozen = cfg.Offsets, header(s.past[12], "id")
				process := one.start(t)
				frozen := process.Process.Pid
				relaytest.Eventually(t, "the member is frozen", func() (bool, string) {
					var status syscall.WaitStatus
					pid, err := syscall.Wait4(frozen, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
					return pid == frozen && status.Stopped(), fmt.Sprint(err)
				})
				before := s.effects(t)
				reported := troubles(&cfg)
				over := make(chan time.Duration, 100)
				cfg.Events.Waited = func(_ string, _ int32, took time.Duration) { over <- took }
				m := s.start(t, cfg)
				var held *kafkainbox.WaitError
				err := await(t, reported, "the lock", func(err error) bool { return errors.As(err, &held) && len(held.Blockers) > 0 })
				holder := held.Blockers[0]
				for _, want := range []string{"topic " + s.topic + ", partition 0: ", fmt.Sprintf("it waits for a lock of server process %d (idle in transaction for ", holder.PID), fmt.Sprintf("pg_terminate_backend(%d)", holder.PID), "idle_in_transaction_session_timeout", "tcp_keepalives_idle"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%v\nlacks %s", err, want)
					}
				}
				if n := s.effects(t); n != before && way != "parallel" {
					t.Errorf("%d effects, and %d before it waited", n, before)
				}
				if end == "continued" {
					_ = syscall.Kill(frozen, syscall.SIGCONT)
				} else {
					s.db.Exec(t, fmt.Sprintf("SELECT pg_terminate_backend(%d)", holder.PID))
				}
				ended := false
				relaytest.Eventually(t, "all is handled, and the end of the wait is reported", func() (bool, string) {
					select {
					case err := <-reported: // with Parallel the frozen member may have several transactions
						if end == "terminated" && errors.As(err, &held) && len(held.Blockers) > 0 {
							s.db.Exec(t, fmt.Sprintf("SELECT pg_terminate_backend(%d)", held.Blockers[0].PID))
						}
					case took := <-over:
						if ended = true; took < 5*time.Second {
							t.Errorf("it waited for %s", took)
						}
					default:
					}
					n := s.effects(t)
					return ended && n == len(s.ids), fmt.Sprint(n, " effects, reported: ", ended)
				})
				_ = process.Process.Kill()
				_, _ = process.Process.Wait()
				s.awaitCommitted(t)
				m.leave(t)
				s.verify(t)
			})
		}
	}
}
