package disk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// The entries of a log that is moved: with a hole, and in several segments.
const (
	movedHole    = 100
	movedLast    = 2300
	movedSegment = 64 << 10
)

// makeMoved makes a log on a store.
func makeMoved(dir string, store LogStore) error {
	l, err := OpenLog(dir, LogOptions{Store: store, SegmentBytes: movedSegment})
	if err != nil {
		return err
	}
	return errors.Join(l.StoreLogs(logs(3, 1, 7, 10)), l.StoreLogs(logs(4, movedHole, movedLast, 200)),
		l.SetUint64(raftTerm, 5), l.SetUint64(voteTerm, 5), l.Set(voteCandidate, []byte("somebody")), l.Close())
}

// checkMoved compares a log with what makeMoved makes.
func checkMoved(t *testing.T, l *Log) {
	t.Helper()
	first, err := l.FirstIndex()
	must(t, err)
	last, err := l.LastIndex()
	must(t, err)
	if first != 1 || last != movedLast || l.Run() != movedHole {
		t.Errorf("the log has %d to %d, the last of it from %d on", first, last, l.Run())
	}
	for i := uint64(1); i <= movedLast; i++ {
		var got raft.Log
		switch err := l.GetLog(i, &got); {
		case i > 7 && i < movedHole:
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
	must(t, err)
	voted, err := l.GetUint64(voteTerm)
	must(t, err)
	vote, err := l.Get(voteCandidate)
	must(t, err)
	if term != 5 || voted != 5 || string(vote) != "somebody" {
		t.Errorf("term %d, vote of term %d for %q", term, voted, vote)
	}
}

// childMove moves a log from one store to another one.
func childMove(dir string) error {
	l, err := OpenLog(dir, LogOptions{Store: LogStore(os.Getenv(childSeed)), SegmentBytes: movedSegment})
	if err != nil {
		return err
	}
	return l.Close()
}

// TestMoveLog moves a log from each store to each other one, and ends the process between
// any two steps of it. Whatever store is asked for next, nothing is missing.
func TestMoveLog(t *testing.T) {
	for _, to := range LogStores() {
		from := BoltDB
		if to == BoltDB {
			from = Segments
		}
		t.Run("to "+string(to), func(t *testing.T) {
			root, want := t.TempDir(), childSeed+"="+string(to)
			start := func(i int) string {
				dir := filepath.Join(root, strconv.Itoa(i))
				must(t, makeMoved(dir, from))
				return dir
			}
			out, err := child(t, "move", start(0), childKill+"=-1", want).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			segments := len(segmentFiles(t, filepath.Join(start(1), segmentDir)))
			steps := strings.Count(string(out), "failpoint ")
			if steps < 2 {
				t.Fatalf("%d steps\n%s", steps, out)
			}
			for kill := range steps + 1 {
				for i, next := range []LogStore{"", Segments, BoltDB} {
					dir := start(10*kill + i + 10)
					out, err := child(t, "move", dir, childKill+"="+strconv.Itoa(kill+1), want).CombinedOutput()
					if _, killed := errors.AsType[*exec.ExitError](err); killed == (kill == steps) {
						t.Fatalf("kill %d of %d: %v\n%s", kill, steps, err, out)
					}
					if to == BoltDB {
						loseMore(t, filepath.Join(dir, segmentDir), segments)
					}
					l, err := OpenLog(dir, LogOptions{Store: next, SegmentBytes: movedSegment})
					if err != nil {
						t.Fatalf("killed at step %d, opened as %q: %v", kill, next, err)
					}
					checkMoved(t, l)
					must(t, l.StoreLogs(logs(6, movedLast+1, movedLast+1, 10)))
					must(t, l.Close())
					if there, err := exists(dir, segmentDir); err != nil || next == BoltDB && there {
						t.Errorf("killed at step %d, opened as %q: %s is there, %v", kill, next, segmentDir, err)
					}
				}
			}
		})
	}
}

// segmentFiles returns what is in a directory, if it is there.
func segmentFiles(t *testing.T, dir string) (paths []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	return paths
}

// loseMore takes another file out of a directory that had so many, if some are gone:
// removals reach the disk in any order.
func loseMore(t *testing.T, dir string, had int) {
	t.Helper()
	if files := segmentFiles(t, dir); len(files) < had && len(files) > 2 {
		must(t, os.Remove(files[len(files)/2]))
	}
}

// TestMovedFileIsKept: the raft.db that a log was moved from is there until there is a
// snapshot.
func TestMovedFileIsKept(t *testing.T) {
	dir := t.TempDir()
	must(t, makeMoved(dir, BoltDB))
	l, err := OpenLog(dir, LogOptions{Store: Segments})
	must(t, err)
	must(t, l.Close())
	old := t.TempDir()
	copyFile(t, filepath.Join(dir, movedFile), filepath.Join(old, logFile))
	l, err = OpenLog(old, LogOptions{})
	must(t, err)
	checkMoved(t, l)
	must(t, l.Close())
	n, err := openNode(dir)
	must(t, err)
	n.db.Record(n.m.apply(3))
	must(t, n.local())
	must(t, n.db.Close())
	if there, err := exists(dir, movedFile); err != nil || there {
		t.Errorf("%s is there behind a snapshot: %v, %v", movedFile, there, err)
	}
}

// TestHalfALog: raft.db and raft-log belong together. A directory that lacks one of them,
// or has an old copy of one, has lost its log.
func TestHalfALog(t *testing.T) {
	for name, break_ := range map[string]func(dir, old string) error{
		"raft.db is gone":  func(dir, _ string) error { return os.Remove(filepath.Join(dir, logFile)) },
		"raft-log is gone": func(dir, _ string) error { return os.RemoveAll(filepath.Join(dir, segmentDir)) },
		"raft-log is emptied": func(dir, _ string) error {
			path := filepath.Join(dir, segmentDir)
			return errors.Join(os.RemoveAll(path), os.Mkdir(path, dirMode))
		},
		"the end of raft-log is gone": func(dir, _ string) error {
			files, err := os.ReadDir(filepath.Join(dir, segmentDir))
			if err != nil || len(files) < 3 {
				return fmt.Errorf("%d files: %w", len(files), err)
			}
			for _, f := range files[len(files)-2:] { // the last one may be prepared
				err = errors.Join(err, os.Remove(filepath.Join(dir, segmentDir, f.Name())))
			}
			return err
		},
		"raft.db is emptied": func(dir, _ string) error { return os.Truncate(filepath.Join(dir, logFile), 0) },
		"raft.db is that of an earlier release": func(dir, old string) error {
			return os.Rename(filepath.Join(old, logFile), filepath.Join(dir, logFile))
		},
	} {
		dir, old := t.TempDir(), t.TempDir()
		must(t, makeMoved(dir, Segments))
		must(t, makeMoved(old, BoltDB))
		l, err := OpenLog(dir, LogOptions{})
		must(t, err)
		must(t, l.StoreLogs(logs(4, movedLast+1, movedLast+1, 10)))
		must(t, l.Close())
		must(t, break_(dir, old))
		for _, store := range []LogStore{"", Segments, BoltDB} {
			if l, err := OpenLog(dir, LogOptions{Store: store}); !errors.Is(err, ErrLogLost) {
				t.Errorf("%s, opened as %q: %v", name, store, err)
				must(t, l.Close())
			}
		}
	}
}

// TestUnknownLogStore: a name that a later release may have written is not taken for one
// of ours.
func TestUnknownLogStore(t *testing.T) {
	dir := t.TempDir()
	must(t, makeMoved(dir, Segments))
	l, err := OpenLog(dir, LogOptions{})
	must(t, err)
	must(t, l.Set(storeKey, []byte("tape")))
	must(t, l.Close())
	if _, err := OpenLog(dir, LogOptions{}); err == nil || !strings.Contains(err.Error(), `"tape"`) {
		t.Error(err)
	}
	if _, err := OpenLog(t.TempDir(), LogOptions{Store: "tape"}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", LogStores())) {
		t.Error(err)
	}
}

// TestFailedNumberIsFatal: the number of a new segment is written to raft.db behind
// everybody's back. If that fails, nothing is written to raft.db any more.
func TestFailedNumberIsFatal(t *testing.T) {
	var broken atomic.Bool
	fatal := make(chan error, 10)
	l, err := OpenLog(t.TempDir(), LogOptions{
		Store: Segments, SegmentBytes: movedSegment, Fatal: func(err error) { fatal <- err },
		Commit: func(file string, commit func() error) error {
			if file == logFile && broken.Load() {
				return syscall.EIO
			}
			return commit()
		},
	})
	must(t, err)
	broken.Store(true)
	must(t, l.StoreLogs(logs(1, 1, 1, movedSegment*2/3))) // more than half: the next segment is made
	select {
	case err := <-fatal:
		if !errors.Is(err, syscall.EIO) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the process goes on")
	}
	must(t, l.Close())
}
