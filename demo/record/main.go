//go:build linux

// Command record makes the picture of the demo in the README: it runs the real demo on a
// terminal of fixed size, presses its keys at fixed times, and draws what the screen
// shows as an animated SVG.
//
//	go run ./demo/record -o docs/images/demo.svg
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The terminal, and what happens on it. One frame is a second.
const (
	columns, rows = 104, 26
	lastFor       = 6 // seconds that the last frame stays
)

// keys are pressed at these seconds of the show.
var keys = map[int]byte{5: 'k', 19: 'b', 23: 'q'}

func main() {
	out := flag.String("o", "docs/images/demo.svg", "file to write")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	frames, err := record()
	if err != nil {
		return err
	}
	return os.WriteFile(out, []byte(svg(frames)), 0o644)
}

// record runs the demo from its first screen to its end.
func record() ([]frame, error) {
	dir, err := os.MkdirTemp("", "cdc-relay-record-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := dir + "/demo"
	build := exec.Command("go", "build", "-o", binary, "./demo")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build the demo: %w", err)
	}
	master, slave, err := openTerminal()
	if err != nil {
		return nil, err
	}
	defer master.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	demo := exec.CommandContext(ctx, binary)
	demo.Stdin, demo.Stdout, demo.Stderr = slave, slave, slave
	demo.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := demo.Start(); err != nil {
		return nil, err
	}
	slave.Close()
	t := &screen{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(t, master) // ends with an error when the demo has closed its side
	}()
	frames, err := t.watch(ctx, master, read)
	return frames, errors.Join(err, demo.Wait())
}

// watch takes a frame each second, from the first screen on.
func (s *screen) watch(ctx context.Context, keyboard io.Writer, ended <-chan struct{}) (frames []frame, err error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return append(frames, s.frame()), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		if f := s.frame(); len(frames) > 0 || strings.Contains(f.text(), "streaming") {
			if key, ok := keys[len(frames)]; ok {
				if _, err := keyboard.Write([]byte{key}); err != nil {
					return nil, err
				}
			}
			if s.alternate() {
				frames = append(frames, f)
			}
		}
	}
}

// openTerminal gives both ends of a pseudo terminal.
func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}

// screen is a terminal as far as the demo uses one: cursor home, clearing, a second
// screen, bold, dim, red and green. One goroutine writes to it, another looks.
type screen struct {
	mu      sync.Mutex
	cells   frame
	row     int
	column  int
	style   style
	second  bool
	pending []byte // an escape sequence that is not complete
}

func (s *screen) alternate() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.second
}

func (s *screen) frame() frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cells
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := string(append(s.pending, p...))
	s.pending = nil
	for len(text) > 0 {
		if text[0] == 0x1b {
			end := strings.IndexFunc(text[1:], func(r rune) bool { return r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' })
			if end < 0 {
				s.pending = []byte(text)
				break
			}
			s.escape(text[1 : end+2])
			text = text[end+2:]
			continue
		}
		r := []rune(text)[0]
		s.put(r)
		text = text[len(string(r)):]
	}
	return len(p), nil
}

func (s *screen) put(r rune) {
	switch {
	case r == '\r':
		s.column = 0
	case r == '\n':
		s.down()
	case r < ' ':
	default:
		if s.column == columns {
			s.column = 0
			s.down()
		}
		s.cells[s.row][s.column] = cell{r, s.style}
		s.column++
	}
}

func (s *screen) down() {
	if s.row++; s.row < rows {
		return
	}
	s.row = rows - 1
	copy(s.cells[:], s.cells[1:])
	s.cells[rows-1] = [columns]cell{}
}

func (s *screen) escape(code string) {
	switch code {
	case "[H":
		s.row, s.column = 0, 0
	case "[K":
		clear(s.cells[s.row][min(s.column, columns):])
	case "[J", "[2J":
		if code == "[2J" {
			s.row, s.column = 0, 0
		}
		clear(s.cells[s.row][min(s.column, columns):])
		clear(s.cells[s.row+1:])
	case "[?1049h", "[?1049l":
		s.cells, s.row, s.column, s.second = frame{}, 0, 0, code == "[?1049h"
	case "[1m":
		s.style |= bold
	case "[2m":
		s.style |= dim
	case "[31m":
		s.style = s.style&^green | red
	case "[32m":
		s.style = s.style&^red | green
	case "[0m", "[m":
		s.style = 0
	}
}
