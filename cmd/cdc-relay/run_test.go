package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/rs/zerolog"
)

// stubRelay runs until it is stopped and then ends with err.
type stubRelay struct {
	err     error
	aborted chan struct{}
	status  status.Status
}

func (r *stubRelay) Run(ctx context.Context) error {
	<-ctx.Done()
	if r.aborted != nil {
		<-r.aborted
		return relay.ErrDrainCut
	}
	return r.err
}

func (r *stubRelay) Abort()                 { close(r.aborted) }
func (r *stubRelay) Status() status.Status  { return r.status }
func (r *stubRelay) AlreadySentRows() int64 { return 0 }
func (r *stubRelay) TryNow() bool           { return false }

func stubDaemon(t *testing.T, r *stubRelay) *daemon {
	t.Helper()
	cfg, err := config.Load(config.Options{Environ: closedPorts})
	if err != nil {
		t.Fatal(err)
	}
	return &daemon{app: &app{}, cfg: cfg, relay: r, log: zerolog.Nop()}
}

func TestDaemon_TellsEveryErrorOfItsEnd(t *testing.T) {
	lost := errors.New("the listener is gone")
	for name, tt := range map[string]struct {
		run  error
		code int
	}{
		"the relay stops cleanly": {nil, exitFailed},
		"the relay is blocked":    {&relay.BlockedError{Err: errors.New("row 1")}, exitBlocked},
		"the relay is refused":    {&relay.RefusedError{Err: errors.New("no slot")}, exitRefused},
	} {
		t.Run(name, func(t *testing.T) {
			d := stubDaemon(t, &stubRelay{err: tt.run})
			d.serve = func(context.Context) error { return lost }
			err := d.run(t.Context())
			if !errors.Is(err, lost) || exitCode(err) != tt.code || tt.run != nil && !strings.Contains(err.Error(), tt.run.Error()) {
				t.Errorf("%v, exit code %d, want %d", err, exitCode(err), tt.code)
			}
		})
	}
}

func TestDaemon_GivesMistakesOfTheMappingTheirPlace(t *testing.T) {
	d := stubDaemon(t, &stubRelay{err: &relay.ConfigError{Err: &router.ConfigError{Path: "outbox[0].table", Err: errors.New("does not fit")}}})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := d.run(ctx); err == nil || !strings.Contains(err.Error(), "CDC_RELAY_OUTBOX_TABLE: outbox[0].table: does not fit") {
		t.Errorf("%v", err)
	}
}

func TestDaemon_StopsOnceItIsWhereItWasToGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := stubDaemon(t, &stubRelay{status: status.Status{State: status.Streaming}})
		looks := 0
		d.until = func(s status.Status) bool { looks++; return looks == 3 && s.State == status.Streaming }
		if err := d.run(t.Context()); err != nil || !d.reached || looks != 3 {
			t.Errorf("%v, reached %t after %d looks", err, d.reached, looks)
		}
	})
}

func TestDaemon_SecondSignalCutsTheDrainShort(t *testing.T) {
	d := stubDaemon(t, &stubRelay{aborted: make(chan struct{})})
	hurry := make(chan struct{})
	close(hurry)
	d.app.hurry = hurry
	d.until = func(status.Status) bool { return false }
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := d.run(ctx); !errors.Is(err, relay.ErrDrainCut) || d.reached {
		t.Errorf("%v, reached %t", err, d.reached)
	}
}

// deafRelay ignores stop and abort, as a relay does whose servers do not answer.
type deafRelay struct {
	*stubRelay
	answered chan struct{}
}

func (r *deafRelay) Run(context.Context) error { <-r.answered; return nil }

// The second signal ends the process soon, also where the relay still waits for servers
// that do not answer.
func TestDaemon_IsNotHeldUpByServersThatDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf := &deafRelay{&stubRelay{aborted: make(chan struct{})}, make(chan struct{})}
		defer close(deaf.answered)
		d := stubDaemon(t, deaf.stubRelay)
		d.relay = deaf
		hurry := make(chan struct{})
		d.app.hurry = hurry
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.run(ctx) }()
		stop()
		select {
		case err := <-ended:
			t.Fatalf("it ended before the second signal: %v", err)
		case <-time.After(9 * time.Second):
		}
		close(hurry)
		select {
		case err := <-ended:
			if err == nil || exitCode(err) != exitFailed || !strings.Contains(err.Error(), "the next start sends unconfirmed rows again") {
				t.Errorf("exit code %d: %v", exitCode(err), err)
			}
		case <-time.After(time.Second):
			t.Error("it goes on for a second after the second signal")
		}
		<-deaf.aborted
	})
}

// A terminal that is closed ends the relay as SIGTERM does, with its drain.
func TestOnSignals_HangUpIsAStop(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) { // by nohup; a relay obeys that, and Notify ends it
		hangUps := make(chan os.Signal, 1)
		signal.Notify(hangUps, syscall.SIGHUP)
		defer signal.Stop(hangUps)
	}
	ctx, _, release := onSignals(t.Context())
	defer release()
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
}

// timeout(1) and wrappers that hand signals on send the same one twice.
func TestHeed_TakesSignalsThatComeTogetherForOne(t *testing.T) {
	for name, tt := range map[string]struct {
		at   []time.Duration
		want string
	}{
		"one":                           {[]time.Duration{0}, "stop 0s"},
		"two at once":                   {[]time.Duration{0, 0}, "stop 0s"},
		"an echo of a Ctrl-C":           {[]time.Duration{0, 0, 499 * time.Millisecond}, "stop 0s"},
		"somebody in a hurry":           {[]time.Duration{0, 501 * time.Millisecond}, "stop 0s, hurry 501ms"},
		"an echo is no wish of its own": {[]time.Duration{0, 400 * time.Millisecond, 600 * time.Millisecond}, "stop 0s, hurry 600ms"},
		"each sent twice":               {[]time.Duration{0, 0, time.Second, time.Second}, "stop 0s, hurry 1s"},
		"three wishes":                  {[]time.Duration{0, time.Second, 2 * time.Second}, "stop 0s, hurry 1s, over"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signals, began := make(chan os.Signal, 2), time.Now()
				var seen []string
				note := func(what string) func() {
					return func() { seen = append(seen, what+" "+time.Since(began).String()) }
				}
				ended := make(chan struct{})
				go func() {
					heed(signals, note("stop"), note("hurry"))
					close(ended)
				}()
				for _, at := range tt.at {
					<-time.After(at - time.Since(began))
					select {
					case <-ended:
						seen = append(seen, "over")
					default:
						signals <- syscall.SIGTERM
					}
				}
				synctest.Wait()
				if got := strings.Join(seen, ", "); got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
				for range 2 { // lets heed end
					<-time.After(time.Second)
					select {
					case signals <- syscall.SIGTERM:
					default:
					}
				}
				<-ended
			})
		})
	}
}

// A command that waits for a server which does not answer ends with the second signal all the same.
func TestAwait_TheSecondSignalEndsACommandThatWaits(t *testing.T) {
	for name, tt := range map[string]struct {
		ends time.Duration // zero: never
		code int
		says bool
	}{
		"it ends by itself": {time.Second, 3, false}, "it winds up": {12 * time.Second, 0, false}, "it waits on": {time.Minute, 1, true}, "it hangs": {0, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended, hurry := make(chan int, 1), make(chan struct{})
				if tt.ends > 0 {
					time.AfterFunc(tt.ends, func() { ended <- tt.code })
				}
				time.AfterFunc(10*time.Second, func() { close(hurry) })
				began, said := time.Now(), new(bytes.Buffer)
				if code := await(ended, hurry, said); code != tt.code || time.Since(began) > 10*time.Second+hurryPatience || said.Len() > 0 != tt.says {
					t.Errorf("code %d after %s: %q", code, time.Since(began), said)
				}
			})
		})
	}
}

// The last line of a log is what an operator goes by.
func TestDaemon_SaysWhatAStopLeaves(t *testing.T) {
	fieldNames()
	at := &status.Obstacle{Reason: "record_too_large", Row: &status.BlockedRow{Table: "public.outbox", Commit: 0x16B3748, Number: 3}}
	const named = `will be sent again by the next start: row 3 of the transaction committing at 0/16B3748 (public.outbox), record_too_large, is not delivered, so the position stays before it"`
	for want, s := range map[string]status.Status{
		"2 rows that the brokers acknowledged " + named:                                             {EventsToRepeat: 2, Obstacle: at},
		"4 rows that the brokers acknowledged " + named:                                             {EventsToRepeat: 4, Shards: []status.Status{{}, {EventsToRepeat: 4, Obstacle: at}}},
		"3 rows that the brokers acknowledged will be sent again by the next start: an earlier row": {EventsToRepeat: 3},
		`"msg":"stopped; the next start continues at row 3 of the transaction committing at 0/16B3748 (public.outbox), record_too_large, which is not delivered"`: {LagSeconds: new(3.0), Obstacle: at},
		`"level":"info","events_published_total":7,"msg":"stopped; all acknowledged rows are confirmed to PostgreSQL"`:                                            {EventsPublished: 7},
		`"level":"warn","events_to_repeat":1,"events_published_total":7,"msg":"stopped; 1 row that the brokers acknowledged will be`:                              {EventsPublished: 7, EventsToRepeat: 1},
		`"msg":"stopped; the next start continues at the first unconfirmed row"`:                                                                                  {LagSeconds: new(3.0)},
	} {
		var log bytes.Buffer
		(&daemon{log: zerolog.New(&log)}).sayStopped(s)
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s, want %s", log.String(), want)
		}
	}
}
