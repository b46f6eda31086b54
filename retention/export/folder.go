package export

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Folder is a directory of this machine that holds the files.
type Folder struct {
	root  string
	flush func(folder string) error // names in a folder are lost with the machine otherwise
}

// OpenFolder requires a directory that is there. A path that is mistyped makes none.
func OpenFolder(path string) (*Folder, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is no directory", path)
	}
	return &Folder{filepath.Clean(path), flush}, nil
}

const temporary = ".tmp"

// Probe implements Store: OpenFolder has looked.
func (f *Folder) Probe(context.Context) error { return nil }

// Write implements Store. The file's bytes are on the disk, and were read back.
func (f *Folder) Write(_ context.Context, s Slice, header *Header, each func(row func([]Value) error) error) (path string, size int64, err error) {
	folder := filepath.Join(f.root, filepath.FromSlash(s.folder()))
	if err := f.makeFolder(folder); err != nil {
		return "", 0, err
	}
	part, err := f.parts(folder, s)
	if err != nil {
		return "", 0, err
	}
	path = filepath.Join(folder, s.file(part))
	made := filepath.Join(folder, "."+filepath.Base(path)+temporary)
	defer func() { _ = os.Remove(made) }() // it is gone, or it failed
	trailer, err := f.writeFile(made, header, each)
	if err != nil {
		return "", 0, err
	}
	if part > 0 && !header.Repeats {
		before := filepath.Join(folder, s.file(part-1))
		if there, err := verify(before); err == nil && there == trailer {
			return before, 0, f.sync(folder) // of a run that came no further, and perhaps flushed nothing
		}
	}
	if err := giveName(made, path); err != nil {
		return "", 0, err
	}
	if err := f.sync(folder); err != nil {
		return "", 0, err
	}
	there, err := verify(path)
	if err == nil && there != trailer {
		err = errors.New("it has other rows than were written")
	}
	if err != nil {
		return "", 0, fmt.Errorf("read %s again: %w", path, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", 0, err
	}
	return path, info.Size(), nil
}

// giveName gives a file its name unless there is one of that name: another database may have a table of the
// same name and the same directory, and a process that was given up for dead may go on.
func giveName(made, path string) error {
	err := os.Link(made, path)
	switch {
	case err == nil:
		return os.Remove(made)
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s appeared while its rows were on the way: %w", path, fs.ErrExist)
	}
	if _, there := os.Lstat(path); !errors.Is(there, fs.ErrNotExist) { // a file system without links
		return fmt.Errorf("%s appeared while its rows were on the way: %w", path, fs.ErrExist)
	}
	return os.Rename(made, path)
}

// makeFolder makes a folder and those above it.
func (f *Folder) makeFolder(folder string) error {
	if _, err := os.Stat(folder); err == nil || folder == f.root {
		return err
	}
	if err := f.makeFolder(filepath.Dir(folder)); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// parts is how many files an hour has. What a run left that did not end is removed: the table's
// lock lets one write at a time.
func (f *Folder) parts(folder string, s Slice) (next int, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), temporary); ok && strings.HasPrefix(name, "."+s.hour()+"-") {
			if err := os.Remove(filepath.Join(folder, e.Name())); err != nil {
				return 0, err
			}
		}
		if n, mine := s.part(e.Name()); mine {
			next = max(next, n+1)
		}
	}
	return next, nil
}

func (f *Folder) writeFile(path string, header *Header, each func(func([]Value) error) error) (t Trailer, err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return t, err
	}
	defer func() {
		if end := file.Close(); err == nil {
			err = end
		}
	}()
	if t, err = encode(file, header, each); err != nil {
		return t, err
	}
	return t, file.Sync()
}

// sync flushes a folder and those above it. A run that was cut may have made them, and flushed none.
func (f *Folder) sync(folder string) error {
	if err := f.flush(folder); err != nil || folder == f.root {
		return err
	}
	return f.sync(filepath.Dir(folder))
}

func flush(folder string) error {
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func verify(path string) (Trailer, error) {
	file, err := os.Open(path)
	if err != nil {
		return Trailer{}, err
	}
	defer file.Close()
	return read(file)
}
