package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// runner starts programs as an account that may run PostgreSQL, and keeps
// directories for it.
type runner struct {
	credential *syscall.Credential // nil: as ourselves
	home       string
}

// newRunner drops root's rights. The account must exist: initdb fails for a uid
// without a passwd entry.
func newRunner() (*runner, error) {
	removeStale()
	if os.Geteuid() != 0 {
		return &runner{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(account.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(account.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid != 0 {
			return &runner{credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, home: "/"}, nil
		}
	}
	return nil, errors.New("start PostgreSQL as root: it refuses to run as root, and there is no account postgres or nobody to drop to: " +
		"add one, run as an ordinary user, or give the address of a running server")
}

func (r *runner) prepare(cmd *exec.Cmd) {
	cmd.Dir = "/"
	cmd.Env = cleanEnvironment()
	if r.credential != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: r.credential}
	}
}

// cleanEnvironment leaves out libpq's variables and the locale, which would make
// the server another one than on the next machine.
func cleanEnvironment() []string {
	kept := []string{"LC_ALL=C"}
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "LC_") || name == "LANG" || name == "LANGUAGE" {
			continue
		}
		kept = append(kept, entry)
	}
	return kept
}

func (r *runner) start(cmd *exec.Cmd, dir string) (*process, error) {
	r.prepare(cmd)
	return startProcess(cmd, dir)
}

// Directories are named after the process that made them, so that a later one
// knows which are left over.
const dirPrefix = "cdc-relay-sandbox-"

// TempDir makes a directory that the next sandbox removes when this process died
// without doing so.
func TempDir(kind string) (string, error) {
	removeStale()
	return (&runner{}).makeDir(kind)
}

func (r *runner) makeDir(kind string) (string, error) {
	return r.makeDirIn("", fmt.Sprintf("%s%s-%d-*", dirPrefix, kind, os.Getpid()))
}

// makeDirIn makes a directory of the account, whose name is a pattern as in os.MkdirTemp.
func (r *runner) makeDirIn(folder, pattern string) (string, error) {
	dir, err := os.MkdirTemp(folder, pattern)
	if err != nil {
		return "", fmt.Errorf("make directory: %w", err)
	}
	if r.credential != nil {
		if err := os.Chown(dir, int(r.credential.Uid), int(r.credential.Gid)); err != nil {
			return "", fmt.Errorf("make directory: %w", errors.Join(err, os.RemoveAll(dir)))
		}
	}
	return dir, nil
}

func (r *runner) writeFile(name string, content []byte) error {
	if err := os.WriteFile(name, content, 0o600); err != nil {
		return err
	}
	if r.credential == nil {
		return nil
	}
	return os.Chown(name, int(r.credential.Uid), int(r.credential.Gid))
}

func (r *runner) removeDir(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove directory: %w", err)
	}
	return nil
}

// removeStale removes what processes left that ended together with their guard,
// as in a power failure.
func removeStale() {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*-*-*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		parts := strings.Split(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
		pid, err := strconv.Atoi(parts[len(parts)-2])
		if err != nil || pid <= 0 || syscall.Kill(pid, 0) != syscall.ESRCH || serverAlive(dir) {
			continue
		}
		_ = os.RemoveAll(dir) // somebody else's is not ours to remove
	}
}

// serverAlive reports whether the directory's own server still runs.
func serverAlive(dir string) bool {
	content, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return false
	}
	line, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	return err == nil && syscall.Kill(pid, 0) != syscall.ESRCH
}
