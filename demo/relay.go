package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/admin"
	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/check"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/explain"
	"github.com/cdc-relay/cdc-relay/metrics"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/ways"
)

// relayVariable holds the configuration and makes this program the relay. The
// relay is a process of its own so that it can really be killed.
const relayVariable = "CDC_RELAY_DEMO_CONFIG"

// relayMain does what `cdc-relay run` does, and ends with the demo: its standard
// input is a pipe that only the demo holds open.
func relayMain() int {
	cfg, err := loadConfig(os.Getenv(relayVariable))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	zerolog.MessageFieldName = "msg" // as in cdc-relay run, whose console shows it
	tail := admin.NewLogTail(time.Now())
	lines := zerolog.ConsoleWriter{Out: os.Stderr, NoColor: true, PartsExclude: []string{zerolog.TimestampFieldName}}
	log := zerolog.New(zerolog.MultiLevelWriter(&zerolog.FilteredLevelWriter{Writer: zerolog.LevelWriterAdapter{Writer: lines}, Level: zerolog.WarnLevel}, tail)).
		Level(zerolog.InfoLevel).With().Timestamp().Logger()
	settings := cfg.Relay()
	settings.Version = "demo"
	m := metrics.New(metrics.Options{Pipeline: settings.Pipeline, Version: settings.Version})
	r, err := relay.Open(settings, m.Events(), log, m.Hook)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	serving, done := context.WithCancel(context.Background())
	var page sync.WaitGroup
	console := admin.NewConsole(r.Status, consoleTools(r.Status, cfg, settings, m, tail), time.Hour)
	page.Go(func() { console.Run(serving) })
	page.Go(func() {
		handler := admin.HandlerWithConsole(cfg.HTTP(), r.Status, m.Handler(r.Status), console)
		if err := admin.Serve(serving, cfg.HTTP(), handler, log); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	})
	err = r.Run(ctx)
	done()
	page.Wait()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// consoleTools are those of cdc-relay, without dead letters, of which a demo has none.
func consoleTools(show func() status.Status, cfg *config.Config, settings relay.Config, m *metrics.Metrics, tail *admin.LogTail) admin.Tools {
	return admin.Tools{
		Source: postgres.Where(settings.Replication), Log: tail, Timings: m.Timings, Tables: []string{"public.outbox"}, Facts: ways.Facts{Brokers: strings.Join(settings.Kafka.Brokers, ","), Stops: true},
		Check: func(ctx context.Context) (any, error) {
			found := check.Run(ctx, cfg, check.Options{Timeout: 20 * time.Second, RunStep: func(_ string, step func()) { step() }, Own: func(context.Context) *status.Status { st := show(); return &st }}).Findings
			return map[string]any{"ok": found.Count(advice.OK), "warn": found.Count(advice.Warn), "fail": found.Count(advice.Fail), "findings": found}, ctx.Err()
		},
		Explain: func(ctx context.Context, table string, values bool) (any, error) {
			explainer, err := explain.New(cfg, explain.Options{Table: table, NoRecord: !values})
			if err != nil {
				return nil, err
			}
			reports, err := explainer.Tables(ctx)
			return map[string]any{"tables": reports}, err
		},
		Configuration: func() (string, error) {
			var out strings.Builder
			err := cfg.Print(&out)
			return out.String(), err
		},
	}
}

// relayProcess is the demo's side. Its methods may be called from any goroutine.
type relayProcess struct {
	yaml, http string
	client     http.Client

	mu       sync.Mutex
	cmd      *exec.Cmd
	life     io.Closer // the pipe that keeps it alive
	ended    chan struct{}
	failure  error // why it ended; to be read after ended
	messages lastLines
}

func newRelayProcess(yaml, address string) *relayProcess {
	return &relayProcess{yaml: yaml, http: address, client: http.Client{Timeout: time.Second}}
}

func (r *relayProcess) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start relay: %w", err)
	}
	cmd := exec.Command(program)
	cmd.Env = []string{relayVariable + "=" + r.yaml, "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	cmd.Stderr = &r.messages
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal to the group, as Ctrl-C is, does not reach it: the demo decides when to stop
	life, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start relay: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start relay: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		r.failure = cmd.Wait()
		close(ended)
	}()
	r.cmd, r.life, r.ended = cmd, life, ended
	return nil
}

// kill is kill -9. It returns when the process is gone.
func (r *relayProcess) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Kill()
	<-r.ended
	_ = r.life.Close()
	r.cmd = nil
}

// stop lets it drain.
func (r *relayProcess) stop() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return nil
	}
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	var err error
	select {
	case <-r.ended:
		err = r.failure
	case <-time.After(35 * time.Second):
		_ = r.cmd.Process.Kill()
		<-r.ended
		err = errors.Join(errors.New("it did not drain in time"), r.failure)
	}
	_ = r.life.Close()
	r.cmd = nil
	if err != nil {
		return fmt.Errorf("stop relay: %w\n%s", err, &r.messages)
	}
	return nil
}

// status asks the relay's page, as anybody may.
func (r *relayProcess) status(ctx context.Context) (status.Status, error) {
	var status status.Status
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.http+"/api/v1/status", nil)
	if err != nil {
		return status, err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return status, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return status, fmt.Errorf("the relay's page answered %s", response.Status)
	}
	return status, json.NewDecoder(response.Body).Decode(&status)
}

func (r *relayProcess) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("the relay was not ready within 30s"))
	defer cancel()
	for {
		st, err := r.status(ctx)
		if err == nil && st.State == status.Streaming {
			return nil
		}
		select {
		case <-r.ended:
			return fmt.Errorf("start relay: it ended: %w\n%s", r.failure, &r.messages)
		case <-ctx.Done():
			return fmt.Errorf("start relay: %w; state %s %s\n%s", context.Cause(ctx), st.State, st.Message, &r.messages)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// lastLines keeps the end of what the relay says.
type lastLines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if over := len(l.text) - 4096; over > 0 {
		l.text = bytes.Clone(l.text[over:])
	}
	return len(p), nil
}

func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(string(l.text))
}
