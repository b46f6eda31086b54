package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// credentials looks for a relative name in dir first, which is where systemd puts
// what LoadCredential names. Without a dir it changes nothing.
func credentials(read func(string) ([]byte, error), dir string) func(string) ([]byte, error) {
	if dir == "" {
		return read
	}
	return func(name string) ([]byte, error) {
		if filepath.IsAbs(name) {
			return read(name)
		}
		content, err := read(filepath.Join(dir, name))
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return content, err
		}
		if content, err = read(name); errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w, nor in $CREDENTIALS_DIRECTORY (%s)", cause(err), dir)
		}
		return content, err
	}
}
