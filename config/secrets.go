package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/config/document"
)

const commandTimeout = 30 * time.Second

// readSecret returns the file's text without its last line break. Its errors
// name the file and nothing else.
func readSecret(readFile func(string) ([]byte, error), path string) (string, error) {
	content, err := readFile(path)
	if err != nil {
		return "", fmt.Errorf("read %s: %w; name a file that holds the secret and that this process may read", path, cause(err))
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if text == "" {
		return "", fmt.Errorf("read %s: file is empty; write the secret into it", path)
	}
	return text, nil
}

// checkCommand requires a program that can be started now, as checkSecret requires a file
// that can be read.
func (l *loader) checkCommand(path string, command []string) {
	if len(command) == 0 || l.unread {
		return
	}
	if at := l.cfg.origins[path]; at.line > 0 && l.cfg.doc != nil { // arguments may be secrets
		l.cfg.doc.Hide(&document.Node{Kind: document.Text, Line: at.line, Column: at.column, LastLine: at.line})
	}
	if len(command) == 1 && strings.Contains(command[0], " ") {
		l.refuse(path, `is one word with spaces in it; allowed: program and arguments as a list, for example ["vault", "read", "-field=password", "db/creds/relay"]`)
		return
	}
	// A bare name may be there where the relay runs and not where its file is validated.
	if !strings.Contains(command[0], "/") {
		return
	}
	if _, err := exec.LookPath(command[0]); err != nil {
		if lookup, ok := errors.AsType[*exec.Error](err); ok {
			err = lookup.Err
		}
		l.refuse(path, "cannot run %s: %v; name a program that this process may start", command[0], cause(err))
	}
}

// checkToken refuses what no client can send in a header.
func (l *loader) checkToken() {
	h := &l.cfg.settings.HTTP
	path, token := "http.token", string(h.Token)
	if h.TokenFile != "" && token == "" {
		path = "http.token_file"
		token, _ = readSecret(l.cfg.readFile, h.TokenFile) // checkSecret has told why it cannot be read
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		l.refuse(path, "the token holds a space, a line break or a sign beyond ASCII, which no header carries; allowed: visible ASCII characters")
	}
}

// cause drops the operation and path that the caller names already.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// readable is what to do about a file that cannot be read.
func readable(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "correct the path, or put the file there"
	case errors.Is(err, fs.ErrPermission):
		return "make it readable for the user that cdc-relay runs as"
	case errors.Is(err, syscall.EISDIR):
		return "name the file in it"
	case errors.Is(err, errNamedPipe):
		return "name a regular file, or hand the text over as /dev/stdin or as <(COMMAND) of the shell"
	case errors.Is(err, errSilent):
		return "end what writes to it, or name a regular file"
	}
	return "name a file that can be read"
}

// secretFunc is asked at every use, so that a rotated file or a new token from
// the command applies without a restart. It is nil when nothing is given.
func (c *Config) secretFunc(value secret, file string, command []string) func(context.Context) (string, error) {
	switch {
	case value != "":
		return func(context.Context) (string, error) { return string(value), nil }
	case file != "":
		return func(context.Context) (string, error) { return readSecret(c.readFile, file) }
	case len(command) > 0:
		return func(ctx context.Context) (string, error) { return runCommand(ctx, command) }
	}
	return nil
}

// runCommand names the program in its errors, not its arguments or what it
// printed: both may hold secrets.
func runCommand(ctx context.Context, command []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", fmt.Errorf("run password_command %s: %w", command[0], err)
	}
	text := strings.TrimRight(out.String(), "\r\n")
	if text == "" {
		return "", fmt.Errorf("run password_command %s: it printed nothing; it has to print the password on standard output", command[0])
	}
	return text, nil
}

// pipeWait is how long a pipe that a shell has opened may take to deliver: somebody may have to enter a
// passphrase first.
const pipeWait = 2 * time.Minute

var (
	errNamedPipe = errors.New("it is a named pipe, from which nothing may ever come")
	errSilent    = errors.New("it is a pipe whose writer did not end")
	errNoFile    = errors.New("it is no file")
)

// readFile reads a file as far as it takes to see that it is too large. A name that could be waited for
// without an end is refused: of what is no regular file, only what a shell or the process has opened is read.
func readFile(name string) ([]byte, error) { return readWithin(name, pipeWait) }

func readWithin(name string, wait time.Duration) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	switch mode := info.Mode(); {
	case mode.IsRegular(), mode.IsDir(), mode&fs.ModeCharDevice != 0, mode&fs.ModeNamedPipe != 0 && opened(name):
	case mode&fs.ModeNamedPipe != 0:
		return nil, &fs.PathError{Op: "read", Path: name, Err: errNamedPipe}
	default:
		return nil, &fs.PathError{Op: "read", Path: name, Err: errNoFile}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Mode()&fs.ModeNamedPipe != 0 {
		_ = f.SetReadDeadline(time.Now().Add(wait))
	}
	content, err := io.ReadAll(io.LimitReader(f, document.MaxFile+1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("%w within %s", errSilent, wait)}
	}
	return content, err
}

// opened reports whether a name is of a file that the process has open: standard input, or the pipe of a
// shell's <(…).
func opened(name string) bool {
	name = filepath.Clean(name)
	return name == "/dev/stdin" || strings.HasPrefix(name, "/dev/fd/") || strings.HasPrefix(name, "/proc/self/fd/")
}

// readWhole reads a secret or a certificate, none of which is larger than a configuration.
func readWhole(name string) ([]byte, error) {
	content, err := readFile(name)
	if len(content) > document.MaxFile {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("file is larger than 1MiB")}
	}
	return content, err
}
