//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// openTerminal takes the terminal over; nil: standard input or output is none.
func openTerminal(out *os.File) *screen {
	in := int(os.Stdin.Fd())
	if _, err := unix.IoctlGetTermios(int(out.Fd()), getTermios); err != nil {
		return nil
	}
	before, err := unix.IoctlGetTermios(in, getTermios)
	if err != nil {
		return nil
	}
	mode := *before
	mode.Lflag &^= unix.ICANON | unix.ECHO
	mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(in, setTermios, &mode); err != nil {
		return nil
	}
	_, _ = out.WriteString("\x1b[?1049h\x1b[?25l\x1b[2J")
	keys := make(chan byte)
	go func() { // nothing can end a read of the terminal; it ends with the process
		var key [1]byte
		for {
			if n, err := os.Stdin.Read(key[:]); err != nil || n == 0 {
				return
			}
			keys <- key[0]
		}
	}()
	return &screen{
		keys: keys,
		size: func() (width, height int) {
			size, err := unix.IoctlGetWinsize(int(out.Fd()), unix.TIOCGWINSZ)
			if err != nil || size.Col == 0 || size.Row == 0 {
				return 80, 24
			}
			return int(size.Col), int(size.Row)
		},
		write: func(text []byte) { _, _ = out.Write(text) },
		close: func() {
			_, _ = out.WriteString("\x1b[?25h\x1b[?1049l")
			_ = unix.IoctlSetTermios(in, setTermios, before)
		},
	}
}
