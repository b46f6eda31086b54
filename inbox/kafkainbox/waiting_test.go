package kafkainbox

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A step without an answer is reported again and again, and then its end. A handler that takes long is not.
func TestWait_IsReportedUntilItIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reports, over atomic.Int64
		p := testPartition(t, Config{Events: Events{
			Trouble: func(err error) {
				var w *WaitError
				if !errors.As(err, &w) || w.Step != "claim" || w.Topic != "t" || len(w.Blockers) != 0 {
					t.Error(err)
				}
				reports.Add(1)
			},
			Waited: func(topic string, _ int32, took time.Duration) {
				if topic != "t" || took != 26*time.Second {
					t.Errorf("topic %s, after %s", topic, took)
				}
				over.Add(1)
			},
		}})
		w := p.timed("claim")
		<-time.After(4 * time.Second)
		w.next("claim")
		<-time.After(26 * time.Second)
		synctest.Wait()
		if reports.Load() != 3 || over.Load() != 0 {
			t.Errorf("reported %d times, over %d times", reports.Load(), over.Load())
		}
		w.next("")
		<-time.After(time.Hour)
		synctest.Wait()
		w.end()
		<-time.After(time.Hour)
		synctest.Wait()
		if reports.Load() != 3 || over.Load() != 1 {
			t.Errorf("at the end reported %d times, over %d times", reports.Load(), over.Load())
		}
	})
}
