package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// credentials looks for a relative name in dir first, which is where systemd puts
// what LoadCredential names. Without a dir it only says so.
func credentials(read func(string) ([]byte, error), dir string) func(string) ([]byte, error) {
	if dir == "" {
		return func(name string) ([]byte, error) {
			content, err := read(name)
			if errors.Is(err, fs.ErrNotExist) && filepath.Base(name) == name {
				err = fmt.Errorf("%w, and $CREDENTIALS_DIRECTORY, where systemd puts credentials, is not set", cause(err))
			}
			return content, err
		}
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
