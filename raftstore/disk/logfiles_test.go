package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
)

// A log with a hole, in several segments.
const (
	holeEnd      = 100
	holedLast    = 2300
	smallSegment = 64 << 10
)

// makeHoled makes a log with a hole.
func makeHoled(dir string) error {
	l, err := OpenLog(dir, LogOptions{SegmentBytes: smallSegment})
	if err != nil {
		return err
	}
	return errors.Join(l.StoreLogs(logs(3, 1, 7, 10)), l.StoreLogs(logs(4, holeEnd, holedLast, 200)),
		l.SetUint64(raftTerm, 5), l.SetUint64(voteTerm, 5), l.Set(voteCandidate, []byte("somebody")), l.Close())
}

// TestReopenLog: all of a log is there when it is opened again.
func TestReopenLog(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, makeHoled(dir))
	l, err := OpenLog(dir, LogOptions{SegmentBytes: smallSegment})
	must.OK(t, err)
	defer l.Close()
	first, err := l.FirstIndex()
	must.OK(t, err)
	last, err := l.LastIndex()
	must.OK(t, err)
	if first != 1 || last != holedLast || l.Run() != holeEnd {
		t.Errorf("the log has %d to %d, the last of it from %d on", first, last, l.Run())
	}
	for i := uint64(1); i <= holedLast; i++ {
		var got raft.Log
		switch err := l.GetLog(i, &got); {
		case i > 7 && i < holeEnd:
			if !errors.Is(err, raft.ErrLogNotFound) {
				t.Fatalf("entry %d: %v", i, err)
			}
		case err != nil:
			t.Fatalf("entry %d: %v", i, err)
		case i <= 7 && !reflect.DeepEqual(got, *logs(3, i, i, 10)[0]) || i > 7 && !reflect.DeepEqual(got, *logs(4, i, i, 200)[0]):
			t.Fatalf("entry %d: %+v", i, got)
		}
	}
	term, err := l.GetUint64(raftTerm)
	must.OK(t, err)
	voted, err := l.GetUint64(voteTerm)
	must.OK(t, err)
	vote, err := l.Get(voteCandidate)
	must.OK(t, err)
	if term != 5 || voted != 5 || string(vote) != "somebody" {
		t.Errorf("term %d, vote of term %d for %q", term, voted, vote)
	}
	// Raft compares the text.
	if _, err := l.Get([]byte("absent")); err == nil || err.Error() != "not found" {
		t.Errorf("no key: %v", err)
	}
}

// TestHalfALog: raft.db and raft-log belong together. A directory that lacks one of them,
// or has an old copy of one, has lost its log.
func TestHalfALog(t *testing.T) {
	for name, break_ := range map[string]func(dir string) error{
		"raft.db is gone":  func(dir string) error { return os.Remove(filepath.Join(dir, stableFile)) },
		"raft-log is gone": func(dir string) error { return os.RemoveAll(filepath.Join(dir, segmentDir)) },
		"raft-log is emptied": func(dir string) error {
			path := filepath.Join(dir, segmentDir)
			return errors.Join(os.RemoveAll(path), os.Mkdir(path, dirMode))
		},
		"the end of raft-log is gone": func(dir string) error {
			files, err := os.ReadDir(filepath.Join(dir, segmentDir))
			if err != nil || len(files) < 3 {
				return fmt.Errorf("%d files: %w", len(files), err)
			}
			for _, f := range files[len(files)-2:] { // the last one may be prepared
				err = errors.Join(err, os.Remove(filepath.Join(dir, segmentDir, f.Name())))
			}
			return err
		},
		"raft.db is emptied": func(dir string) error { return os.Truncate(filepath.Join(dir, stableFile), 0) },
	} {
		dir := t.TempDir()
		must.OK(t, makeHoled(dir))
		must.OK(t, break_(dir))
		for range 2 { // the first start changes nothing
			if l, err := OpenLog(dir, LogOptions{}); !errors.Is(err, ErrLogLost) {
				t.Errorf("%s: %v", name, err)
				must.OK(t, l.Close())
			}
		}
	}
}

// TestUnknownStableFormat: a raft.db of a later release is not taken for one of ours.
func TestUnknownStableFormat(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, makeHoled(dir))
	bolt, err := openBolt(filepath.Join(dir, stableFile))
	must.OK(t, err)
	must.OK(t, bolt.Set(recordKey, seal(binary.BigEndian.AppendUint32(nil, stableFormat+1))))
	must.OK(t, bolt.Close())
	if _, err := OpenLog(dir, LogOptions{}); err == nil || !strings.Contains(err.Error(), "raft.db: format 3 is unknown, this release knows up to 2") {
		t.Error(err)
	}
}

// TestStableFormatOne: a record of format 1 is read, and is of the newest format before a segment can be.
func TestStableFormatOne(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, makeHoled(dir))
	s, err := openStable(dir, nil, false)
	must.OK(t, err)
	want := *s.pairs.Load()
	record := encodeStable(want)
	binary.BigEndian.PutUint32(record, 1)
	must.OK(t, s.bolt.Set(recordKey, seal(record[:len(record)-4])))
	must.OK(t, s.Close())
	s, err = openStable(dir, nil, false)
	must.OK(t, err)
	if got := *s.pairs.Load(); len(want) == 0 || !maps.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("read as %q, want %q", got, want)
	}
	record, err = s.bolt.Get(recordKey)
	must.OK(t, err)
	if format := binary.BigEndian.Uint32(record); format != stableFormat {
		t.Errorf("opened, it has format %d", format)
	}
	must.OK(t, s.Close())
}

// TestStableWithoutRecord: a raft.db that has a term in another form is not a lost log, which recovery
// would make up for.
func TestStableWithoutRecord(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, makeHoled(dir))
	path := filepath.Join(dir, stableFile)
	must.OK(t, os.Remove(path))
	bolt, err := openBolt(path)
	must.OK(t, err)
	must.OK(t, bolt.SetUint64(raftTerm, 7))
	must.OK(t, bolt.Close())
	if _, err := OpenLog(dir, LogOptions{}); err == nil || errors.Is(err, ErrLogLost) || !strings.Contains(err.Error(), "no record of the format that this release knows") {
		t.Error(err)
	}
}

// TestFailedNumberIsFatal: the number of a new segment is written to raft.db behind
// everybody's back. If that fails, nothing is written to raft.db any more.
func TestFailedNumberIsFatal(t *testing.T) {
	var broken atomic.Bool
	fatal := make(chan error, 10)
	l, err := OpenLog(t.TempDir(), LogOptions{
		SegmentBytes: smallSegment, Fatal: func(err error) { fatal <- err },
		Commit: func(file string, commit func() error) error {
			if file == stableFile && broken.Load() {
				return syscall.EIO
			}
			return commit()
		},
	})
	must.OK(t, err)
	broken.Store(true)
	must.OK(t, l.StoreLogs(logs(1, 1, 1, smallSegment*2/3))) // more than half: the next segment is made
	select {
	case err := <-fatal:
		if !errors.Is(err, syscall.EIO) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the process goes on")
	}
	must.OK(t, l.Close())
}
