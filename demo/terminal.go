package main

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// terminal is the user's screen and keyboard, while the demo has them: no echo,
// keys at once, another screen. Ctrl-C stays a signal.
type terminal struct{ keys chan byte }

// saved is how the terminal was, for every way out.
var saved atomic.Pointer[unix.Termios]

// openTerminal is nil where standard input or output is no terminal.
func openTerminal() *terminal {
	if _, err := unix.IoctlGetTermios(int(os.Stdout.Fd()), getTermios); err != nil {
		return nil
	}
	before, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), getTermios)
	if err != nil {
		return nil
	}
	mode := *before
	mode.Lflag &^= unix.ICANON | unix.ECHO
	mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(os.Stdin.Fd()), setTermios, &mode); err != nil {
		return nil
	}
	saved.Store(before)
	_, _ = os.Stdout.WriteString("\x1b[?1049h\x1b[?25l\x1b[2J")
	t := &terminal{keys: make(chan byte)}
	// Nothing can end a read of the terminal; the goroutine ends with the process.
	go func() {
		var key [1]byte
		for {
			if n, err := os.Stdin.Read(key[:]); err != nil || n == 0 {
				return
			}
			t.keys <- key[0]
		}
	}()
	return t
}

// restoreTerminal gives the terminal back as it was. It may be called again.
func restoreTerminal() {
	if before := saved.Swap(nil); before != nil {
		_, _ = os.Stdout.WriteString("\x1b[?25h\x1b[?1049l")
		_ = unix.IoctlSetTermios(int(os.Stdin.Fd()), setTermios, before)
	}
}

func (t *terminal) close() { restoreTerminal() }

func (t *terminal) size() (width, height int) {
	size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return 80, 24
	}
	return int(size.Col), int(size.Row)
}
