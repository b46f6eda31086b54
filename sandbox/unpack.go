package sandbox

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/xi2/xz"
)

// unpack lays out a jar, whose one .txz member holds bin, lib and share, at dir.
// dir appears whole or not at all.
func unpack(jar []byte, dir string) (err error) {
	archive, err := zip.NewReader(bytes.NewReader(jar), int64(len(jar)))
	if err != nil {
		return err
	}
	for _, member := range archive.File {
		if !strings.HasSuffix(member.Name, ".txz") {
			continue
		}
		temporary, err := os.MkdirTemp(filepath.Dir(dir), ".unpack-*")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(temporary) }()
		if err := unpackMember(member, temporary); err != nil {
			return err
		}
		if err := os.Chmod(temporary, 0o755); err != nil {
			return err
		}
		_ = os.RemoveAll(dir) // an earlier one that is not whole
		return os.Rename(temporary, dir)
	}
	return errors.New("the archive has no .txz member")
}

func unpackMember(member *zip.File, dir string) error {
	packed, err := member.Open()
	if err != nil {
		return err
	}
	defer packed.Close()
	plain, err := xz.NewReader(packed, 0)
	if err != nil {
		return err
	}
	entries := tar.NewReader(plain)
	for {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unpackEntry(header, entries, dir); err != nil {
			return err
		}
	}
}

// unpackEntry makes everything readable for the account that runs the server.
func unpackEntry(header *tar.Header, content io.Reader, dir string) error {
	name := filepath.Clean(header.Name)
	if !filepath.IsLocal(name) {
		return fmt.Errorf("entry %q leaves the folder", header.Name)
	}
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(path, 0o755)
	case tar.TypeSymlink:
		if !filepath.IsLocal(filepath.Join(filepath.Dir(name), header.Linkname)) {
			return fmt.Errorf("link %q leaves the folder", header.Name)
		}
		return os.Symlink(header.Linkname, path)
	case tar.TypeReg:
		mode := os.FileMode(header.Mode)&0o755 | 0o644
		file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, content)
		return errors.Join(err, file.Close())
	default:
		return nil
	}
}
