package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"
)

// TemplatesVariable names the environment variable for a folder in which the processes of a test run share
// what is costly to make for each server. Whoever sets it makes the folder and removes it. Unset, nothing
// is shared.
const TemplatesVariable = "CDC_RELAY_TEMPLATES"

// template is the path of what build made for a key, in the folder of templates. The first process that asks
// builds it at the path that build gets, and the others wait.
func (r *runner) template(folder, key string, build func(path string) error) (string, error) {
	sum := sha256.Sum256([]byte(key))
	path := filepath.Join(folder, hex.EncodeToString(sum[:8]))
	unlock, err := Locked(path + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	place, err := r.makeDirIn(folder, "unfinished-*")
	if err != nil {
		return "", err
	}
	unfinished := filepath.Join(place, "data")
	if err = build(unfinished); err == nil {
		err = os.Rename(unfinished, path)
	}
	return path, errors.Join(err, os.RemoveAll(place))
}

// copyCluster makes a data directory as a copy of the one that initdb made once in the run. The copy gets a
// system identifier of its own, because a relay tells servers apart by it.
func (r *runner) copyCluster(ctx context.Context, folder, binaries, data string, args []string) error {
	key := fmt.Sprintf("initdb %d %s %q", os.Geteuid(), binaries, args)
	template, err := r.template(folder, key, func(path string) error { return r.initdb(ctx, binaries, path, args) })
	if err != nil {
		return err
	}
	if err := copyFolder(ctx, template, data); err != nil {
		return err
	}
	if err := renumber(data); err != nil {
		return fmt.Errorf("give the copy of %s a system identifier of its own: %w", template, err)
	}
	return nil
}

// copyFolder keeps owners, rights and times.
func copyFolder(ctx context.Context, from, to string) error {
	if out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w\n%s", from, err, bytes.TrimSpace(out))
	}
	return nil
}

var (
	segmentName = regexp.MustCompile(`^[0-9A-F]{24}$`)
	castagnoli  = crc32.MakeTable(crc32.Castagnoli)
)

// renumber gives a cluster that initdb made, and that never ran, another system identifier. It is the first
// field of the control file, whose last one is a CRC of all before it, and the first one behind the common
// header of each WAL segment. The server compares all three when it starts, and does not start if one is wrong.
func renumber(data string) error {
	control := filepath.Join(data, "global", "pg_control")
	content, err := os.ReadFile(control)
	if err != nil {
		return err
	}
	end, err := controlEnd(content)
	if err != nil {
		return err
	}
	old := bytes.Clone(content[:8])
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	// As initdb does it: the second in which it is made, and what differs within a second.
	identifier := uint64(time.Now().Unix())<<32 | uint64(binary.NativeEndian.Uint32(random[:]))
	binary.NativeEndian.PutUint64(content, identifier)
	binary.NativeEndian.PutUint32(content[end:], crc32.Checksum(content[:end], castagnoli))
	segments, err := os.ReadDir(filepath.Join(data, "pg_wal"))
	if err != nil {
		return err
	}
	for _, segment := range segments {
		if !segmentName.MatchString(segment.Name()) {
			continue
		}
		if err := renumberSegment(filepath.Join(data, "pg_wal", segment.Name()), old, content[:8]); err != nil {
			return err
		}
	}
	return os.WriteFile(control, content, 0o600)
}

// controlEnd is where the CRC of a control file is: releases differ in what is before it, and behind it are zeros.
func controlEnd(content []byte) (int, error) {
	end := (len(bytes.TrimRight(content, "\x00"))+3)/4*4 - 4
	if end < 8 || crc32.Checksum(content[:end], castagnoli) != binary.NativeEndian.Uint32(content[end:]) {
		return 0, errors.New("the control file has another format")
	}
	return end, nil
}

func renumberSegment(name string, old, identifier []byte) (err error) {
	const at = 24
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	found := make([]byte, len(old))
	if _, err := file.ReadAt(found, at); err != nil {
		return err
	}
	if !bytes.Equal(found, old) {
		return fmt.Errorf("the WAL segment %s has another format", filepath.Base(name))
	}
	_, err = file.WriteAt(identifier, at)
	return err
}
