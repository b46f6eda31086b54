package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/jackc/pglogrepl"
)

// process is a running relay.
type process struct {
	cmd    *exec.Cmd
	url    string
	stderr bytes.Buffer
	began  time.Time
}

// start runs the relay for a database and slot.
func (b *bench) start(ctx context.Context, database, slot string) (*process, error) {
	port, err := sandbox.FreePort()
	if err != nil {
		return nil, err
	}
	p := &process{url: fmt.Sprintf("http://127.0.0.1:%d", port), began: time.Now()}
	p.cmd = exec.CommandContext(ctx, b.relay, "run")
	p.cmd.Dir = b.dir
	p.cmd.Env = append(os.Environ(),
		"CDC_RELAY_POSTGRES_URL="+b.pg.URL(database),
		"CDC_RELAY_POSTGRES_SLOT="+slot,
		"CDC_RELAY_POSTGRES_PUBLICATION=bench",
		"CDC_RELAY_OUTBOX_TABLE=public.outbox",
		"CDC_RELAY_KAFKA_BROKERS="+b.brokers,
		"CDC_RELAY_HTTP_LISTEN=127.0.0.1:"+strconv.Itoa(port),
		"CDC_RELAY_LOG_LEVEL=warn",
	)
	p.cmd.Stderr = &p.stderr
	p.cmd.Stdout = &p.stderr
	return p, p.cmd.Start()
}

// status asks the relay; an error while it starts is normal.
func (p *process) status() (relay.Status, error) {
	var st relay.Status
	answer, err := http.Get(p.url + "/api/v1/status")
	if err != nil {
		return st, err
	}
	defer answer.Body.Close()
	return st, json.NewDecoder(answer.Body).Decode(&st)
}

// until waits until the relay confirmed a position.
func (p *process) until(ctx context.Context, target pglogrepl.LSN) (relay.Status, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		st, err := p.status()
		if err == nil && pglogrepl.LSN(st.LSN.Confirmed) >= target {
			return st, nil
		}
		if err == nil && st.State == relay.Blocked {
			return st, fmt.Errorf("relay is blocked: %s", st.Message)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return st, ctx.Err()
		}
	}
}

// usage is what a process took.
type usage struct {
	cpu  time.Duration
	peak int64 // bytes of resident memory
}

// stop ends the relay cleanly.
func (p *process) stop() (usage, error) {
	u := usage{peak: peakMemory(p.cmd.Process.Pid)}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return u, err
	}
	err := p.cmd.Wait()
	if err != nil {
		err = errors.Join(err, errors.New(p.stderr.String()))
	}
	u.cpu = p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
	return u, err
}

// peakMemory is the high-water mark of resident memory; 0 where the system does
// not say.
func peakMemory(pid int) int64 {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}
