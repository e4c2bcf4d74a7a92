package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// rotating is a file that is set aside when it has become too large.
type rotating struct {
	path    string
	max     int64 // bytes; zero: no bound
	backups int
	age     time.Duration

	file *os.File
	size int64
}

type stdout struct{ io.Writer }

func (stdout) Close() error { return nil }

func openFile(path string, maxBytes int64, backups int, age time.Duration) (io.WriteCloser, error) {
	if path == "-" {
		return stdout{os.Stdout}, nil
	}
	r := &rotating{path: path, max: maxBytes, backups: backups, age: age}
	return r, r.open()
}

func (r *rotating) open() (err error) {
	if err = os.MkdirAll(filepath.Dir(r.path), 0o700); err != nil {
		return err
	}
	if r.file, err = os.OpenFile(r.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	info, err := r.file.Stat()
	if err != nil {
		return errors.Join(err, r.file.Close())
	}
	r.size = info.Size()
	return nil
}

// Write appends one line, in a new file if the present one would become too large.
func (r *rotating) Write(line []byte) (int, error) {
	if r.file == nil {
		if err := r.open(); err != nil {
			return 0, err
		}
	}
	if r.max > 0 && r.size > 0 && r.size+int64(len(line)) > r.max {
		if err := r.rotate(); err != nil {
			return 0, fmt.Errorf("rotate: %w", err)
		}
	}
	n, err := r.file.Write(line)
	r.size += int64(n)
	return n, err
}

func (r *rotating) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// rotate sets the file aside as NAME-TIME.EXT, the form of upstream's, and removes
// what is too old or too much.
func (r *rotating) rotate() error {
	err := r.file.Close()
	r.file = nil
	prefix, ext := r.aside()
	err = errors.Join(err, os.Rename(r.path, prefix+time.Now().UTC().Format("2006-01-02T15-04-05.000000")+ext))
	if openErr := r.open(); openErr != nil {
		return errors.Join(err, openErr)
	}
	r.prune()
	return err
}

func (r *rotating) aside() (prefix, ext string) {
	ext = filepath.Ext(r.path)
	return strings.TrimSuffix(r.path, ext) + "-", ext
}

func (r *rotating) prune() {
	prefix, ext := r.aside()
	files, err := filepath.Glob(prefix + "*" + ext)
	if err != nil {
		return
	}
	slices.Sort(files) // by time
	for i, f := range files {
		info, err := os.Stat(f)
		old := err == nil && r.age > 0 && time.Since(info.ModTime()) > r.age
		if old || r.backups > 0 && i < len(files)-r.backups {
			_ = os.Remove(f) // the next rotation tries again
		}
	}
}
