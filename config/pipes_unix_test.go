//go:build unix

package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A pipe into which nobody writes would be waited for without an end.
func TestLoad_ANamedPipeIsRefused(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "relay.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	go func() {
		_, err := Load(Options{Path: pipe, Environ: []string{}})
		refused <- err
	}()
	select {
	case err := <-refused:
		if err == nil || !strings.Contains(err.Error(), pipe) || !strings.Contains(err.Error(), "named pipe") || !strings.Contains(err.Error(), "/dev/stdin") {
			t.Errorf("got %v", err)
		}
	case <-time.After(time.Minute):
		w, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			_ = w.Close()
		}
		t.Fatal("Load waits for a pipe without a writer")
	}
}

// Text that a shell hands over comes through a pipe, which is read to its end, if that comes.
func TestLoad_APipeThatTheShellOpenedIsRead(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	name := fmt.Sprintf("/dev/fd/%d", r.Fd())
	if _, err := readWithin(name, 10*time.Millisecond); !errors.Is(err, errSilent) || !strings.Contains(readable(err), "end what writes to it") {
		t.Errorf("without an end of the text: %v", err)
	}
	if _, err := w.WriteString("pipeline: shop\n"); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	cfg, err := Load(Options{Path: name, Environ: []string{}, Partial: true})
	if err != nil || cfg.Relay().Pipeline != "shop" {
		t.Errorf("got %v", err)
	}
}
