package disk

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Inspect reads a whole backup file, verifies all of it and returns what it
// holds. Errors: ErrDamaged, proto.ErrFormat.
func Inspect(r io.Reader) (*proto.StateRecord, Stats, error) {
	p, _, err := loadBackup(r)
	if err != nil {
		return nil, Stats{}, fmt.Errorf("read backup: %w", err)
	}
	return p.state, Stats{Versions: p.count, Bytes: p.read, About: p.about}, nil
}

// Verify is Inspect for those who only want to know whether it is whole.
func Verify(r io.Reader) error {
	_, _, err := Inspect(r)
	return err
}

// RestoreOptions say what a backup becomes.
type RestoreOptions struct {
	// Cluster is the id of the new cluster. It must differ from the backup's:
	// members of the old cluster must not take the new one's nodes for theirs.
	Cluster proto.ClusterID
	// Bump, if not zero, is added to the backup's revision, and the clock is not
	// looked at: for operators who know better. See begin for the default.
	Bump uint64
	// Now is the time, from which revisions follow. Default time.Now().
	Now time.Time
	// Configuration of the new cluster. It needs a voter.
	Configuration raft.Configuration
	// Supports is the newest feature version that the node's release supports: a backup of
	// a cluster that speaks a newer one is refused, since the node would not start. Zero:
	// any backup is taken.
	Supports uint32
	// Stage, if set, adds node.json to the directory, the last that it needs. Until that is
	// durable no node starts from the directory.
	Stage func(dir string) error
}

// Restored says what a backup has become.
type Restored struct {
	// The state of the new data directory. Its floor is its applied index.
	*proto.StateRecord
	// Backup is the revision of the backup.
	Backup proto.Revision
	// Why the cluster begins where it does.
	Why Why
}

// RestoreBackup makes a new data directory out of a backup file, for the first
// start of the first node of a new cluster; the others join it. Its state is at a
// revision that no cluster has given out (see begin), and so is its floor: every
// older revision answers as compacted. Only live keys are taken over. dir must be
// empty or absent, and is so again if it fails. If the process ends midway, the directory says so, and no
// node starts from it. Errors: ErrNotEmpty, ErrDamaged, ErrNewer, ErrClock, ErrTooHigh.
func RestoreBackup(dir string, r io.Reader, o RestoreOptions) (Restored, error) {
	done, err := restoreBackup(dir, r, o)
	if err != nil {
		return Restored{}, fmt.Errorf("restore backup into %s: %w", dir, err)
	}
	return done, nil
}

func restoreBackup(dir string, r io.Reader, o RestoreOptions) (done Restored, err error) {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	voter := slices.ContainsFunc(o.Configuration.Servers, func(s raft.Server) bool { return s.Suffrage == raft.Voter })
	if o.Cluster == "" || !voter {
		return done, errors.New("the new cluster needs an id and a voter")
	}
	made, err := MakeDirs(dir)
	if err != nil {
		return done, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return done, err
	}
	if len(entries) > 0 {
		return done, fmt.Errorf("it has %s in it: %w", entries[0].Name(), ErrNotEmpty)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, empty(dir), RemoveDirs(made))
		}
	}()
	if err := writeFile(dir, restoringFile, nil); err != nil {
		return done, err
	}
	done, state, err := restoredState(r, o)
	if err != nil {
		return done, err
	}
	if err := writeRestored(dir, state, done.StateRecord, o.Configuration); err != nil {
		return done, err
	}
	if o.Stage != nil {
		if err := errors.Join(o.Stage(dir), syncDir(dir)); err != nil {
			return done, err
		}
	}
	failpoint("restored")
	if err := errors.Join(remove(dir, restoringFile), syncDir(dir)); err != nil {
		return done, err
	}
	return done, nil
}

// empty removes what a restore has made. What says that it is unfinished is the last.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != restoringFile {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, restoringFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// MakeDirs makes a directory and those above it, and returns the ones that were not there, the innermost first.
func MakeDirs(dir string) (made []string, err error) {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = append(made, at)
	}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, errors.Join(err, RemoveDirs(made))
	}
	return made, nil
}

// RemoveDirs removes directories that MakeDirs has made, as far as they are there.
func RemoveDirs(made []string) (err error) {
	for _, dir := range made {
		if e := os.Remove(dir); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// restoredState returns the state in a backup file, and the record with which the new
// cluster begins.
func restoredState(r io.Reader, o RestoreOptions) (done Restored, state *mvcc.State, err error) {
	if _, state, err = loadBackup(r); err != nil {
		return done, nil, err
	}
	rec := state.StateRecord()
	if rec.ClusterId == string(o.Cluster) {
		return done, nil, errors.New("the new cluster needs an id of its own")
	}
	if o.Supports != 0 && rec.FeatureVersion > o.Supports {
		return done, nil, fmt.Errorf("the backup's cluster speaks feature version %d, this release supports %d: %w", rec.FeatureVersion, o.Supports, ErrNewer)
	}
	done = Restored{StateRecord: rec, Backup: proto.Revision(rec.Applied)}
	first, why, err := begin(done.Backup, o.Now, o.Bump)
	if err != nil {
		return done, nil, err
	}
	done.Why = why
	rec.Applied = uint64(first)
	rec.Floor = rec.Applied
	rec.AppliedTerm = max(rec.AppliedTerm, 1)
	rec.ClusterId = string(o.Cluster)
	return done, state, nil
}

// loadBackup returns the state in a backup file, when all of it is verified:
// not only records, but also the chains and the floor that they make.
func loadBackup(r io.Reader) (*parser, *mvcc.State, error) {
	p, err := newParser(r)
	if err != nil {
		return nil, nil, err
	}
	state := mvcc.New()
	if err := state.LoadState(p.state); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	for {
		var rec proto.VersionRecord
		_, _, err := p.next(&rec)
		if errors.Is(err, io.EOF) {
			state.Publish()
			return p, state, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if err := state.LoadVersion(&rec); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
}

func writeRestored(dir string, state *mvcc.State, rec *proto.StateRecord, c raft.Configuration) error {
	live, err := liveVersions(state)
	if err != nil {
		return err
	}
	if err := buildState(dir, live, rec); err != nil {
		return err
	}
	// The first election must be of a later term than the snapshot, or its
	// entries would look older than the snapshot.
	log, err := openLogFiles(dir, LogOptions{}, func() {})
	if err != nil {
		return err
	}
	err = log.SetUint64(raftTerm, rec.AppliedTerm)
	if err := errors.Join(err, log.Close()); err != nil {
		return err
	}
	failpoint("restore.log")
	m := newMeta(rec.Applied, rec.AppliedTerm, c, 1)
	m.DataIndex, m.Received = rec.Applied, &rec.Applied
	return m.write(dir)
}

// liveVersions returns the newest version of each live key, oldest first.
func liveVersions(state *mvcc.State) ([]Added, error) {
	var live []Added
	for name, t := range state.Tables() {
		page, err := t.Range(mvcc.Query{At: state.Applied()})
		if err != nil {
			return nil, err
		}
		for _, v := range page.Versions {
			live = append(live, Added{name, v})
		}
	}
	slices.SortFunc(live, func(a, b Added) int { return cmp.Compare(a.Version.Revision, b.Version.Revision) })
	return live, nil
}

func buildState(dir string, live []Added, rec *proto.StateRecord) error {
	b, err := newBuilder(filepath.Join(dir, stateFile+newSuffix))
	if err != nil {
		return err
	}
	for _, a := range live {
		value, err := encodeVersion(a.Table, a.Version)
		if err == nil {
			payload, sum, _ := open(value)
			err = b.add(a.Version.Revision, payload, sum)
		}
		if err != nil {
			return errors.Join(err, b.abort())
		}
	}
	if _, err := b.finish(rec); err != nil {
		return err
	}
	failpoint("restore.state")
	return rename(dir, stateFile+newSuffix, stateFile)
}
