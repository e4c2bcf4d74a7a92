package pki

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Modes of what is written: a key or a credential, and what anyone may read.
const (
	ModeSecret fs.FileMode = 0o600
	ModePublic fs.FileMode = 0o644
	ModeDir    fs.FileMode = 0o700
)

// WriteFile replaces a file: after a crash it holds either the old content or
// the new one, never a part. The mode is exact, whatever the umask, and holds
// from the moment the file exists. A file that is like that already needs no room on the disk.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	if same(path, data, mode) {
		return syncDir(filepath.Dir(path)) // who has written it may have ended before that
	}
	tmp, err := writeTemp(path, data, mode)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		os.Remove(tmp)
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncDir(filepath.Dir(path))
}

// same reports whether a regular file has the data, and they are on the disk.
func same(path string, data []byte, mode fs.FileMode) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != mode || info.Size() != int64(len(data)) {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	there, err := io.ReadAll(f)
	return err == nil && bytes.Equal(there, data) && f.Sync() == nil
}

// createFile is WriteFile for a file that must not exist: it fails with an
// error that wraps fs.ErrExist, and of several callers at once one wins.
func createFile(path string, data []byte, mode fs.FileMode) error {
	tmp, err := writeTemp(path, data, mode)
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	if err := os.Link(tmp, path); err != nil { // unlike a rename, it replaces nothing
		return fmt.Errorf("create %s: %w", path, err)
	}
	return syncDir(filepath.Dir(path))
}

func writeTemp(path string, data []byte, mode fs.FileMode) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // 0600
	if err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		os.Remove(f.Name())
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	return f.Name(), nil
}

// openAny opens what may be no file, for reading: it does not wait for who writes into a pipe.
func openAny(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// makeDir makes a directory that only its owner can enter, whatever the umask.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, ModeDir); err != nil {
		return err
	}
	return os.Chmod(dir, ModeDir)
}
