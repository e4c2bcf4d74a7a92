// Package settingfile reads files that settings name. A path that somebody mistyped may lead to a
// pipe that nobody writes, to a device, or to a file without an end: none of them may keep
// a program from starting or fill its memory.
package settingfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// MaxBytes bounds a file whose size nothing else bounds.
const MaxBytes = 16 << 20

// pipeWithin is how long the writer of a pipe has to write everything and to close it, pipePause how
// often a pipe is looked at that nobody has opened for writing.
const (
	pipeWithin = 5 * time.Second
	pipePause  = 20 * time.Millisecond
)

// Read reads a file of at most max bytes, behind symbolic links too. It is for what is read again, to
// check it or because it may change: a pipe has its bytes once, and is refused.
func Read(path string, max int) ([]byte, error) { return read(path, max, 0) }

// ReadOnce is Read for what is read once. That may also be a pipe, such as the shell's <(command): its writer
// has a few seconds.
func ReadOnce(path string, max int) ([]byte, error) { return read(path, max, pipeWithin) }

func read(path string, max int, within time.Duration) (text []byte, err error) {
	// Looked at before it is opened: to open a device may do something to it.
	st, err := os.Stat(path)
	if err != nil {
		var failed *fs.PathError
		if errors.As(err, &failed) {
			failed.Op = "open" // what was asked for
		}
		return nil, err
	}
	// The null device says that there is nothing, in scripts that must give a flag.
	if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(st, null) {
		return nil, nil
	}
	if err := check(path, st.Mode(), within > 0); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := check(path, st.Mode(), within > 0); err != nil { // it may be another one by now
		return nil, err
	}
	if st.Mode().IsRegular() {
		text, err = io.ReadAll(io.LimitReader(f, int64(max)+1))
	} else {
		text, err = readPipe(f, max, within)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(text) > max {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, max)
	}
	return text, nil
}

func check(path string, mode fs.FileMode, pipes bool) error {
	switch {
	case mode.IsRegular(), pipes && mode&fs.ModeNamedPipe != 0:
		return nil
	case mode&fs.ModeNamedPipe != 0:
		return fmt.Errorf("%s is a pipe: what is read more than once must be a file", path)
	case mode.IsDir():
		return fmt.Errorf("%s is a directory", path)
	}
	return fmt.Errorf("%s is not a file", path)
}

// readPipe reads until the writer closes. Before the first byte an end may be that of a pipe which nobody
// has opened for writing yet.
func readPipe(f *os.File, max int, within time.Duration) ([]byte, error) {
	end := time.Now().Add(within)
	if err := f.SetReadDeadline(end); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for {
		n, err := text.ReadFrom(io.LimitReader(f, int64(max)+1))
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded), err == nil && n == 0 && time.Now().After(end):
			return nil, fmt.Errorf("nobody has written all of it, and closed it, within %v", within)
		case err != nil || n > 0:
			return text.Bytes(), err
		}
		time.Sleep(pipePause)
	}
}
