package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/proto"
)

// A recovery turns the directory of a survivor into that of the only voter of a new
// cluster. All that is new is made and synced in a directory below it; then the
// mark is written, with the name of the directory that takes what was there before;
// then the files change places; then the mark goes. Before the mark nothing has
// happened, after it every run does what is left.
const (
	recoveringFile = "recovering"
	recoverNew     = "recovery.new"
	// RecoverAside is the folder of a data directory that has what a recovery replaced.
	RecoverAside = "before-recovery"
)

// wrongStateFile is the marker that package membership leaves when the state in a
// directory was found to be wrong.
const wrongStateFile = "state-differs.json"

// recovered are the files that change places, and the ones that a recovered
// directory must not have.
var (
	recovered = []string{stateFile, segmentDir, stableFile, metaFile, "node.json"}
	outdated  = []string{incomingFile, receivingFile, spareFile, firstFile, "bootstrap.json", "wipe-log", wrongStateFile}
)

// ErrRecovering is returned for a directory whose recovery did not finish.
var ErrRecovering = errors.New("a recovery of this directory did not finish: run the same 'quorate recover' again")

// ErrWrongState is returned for a directory whose state a majority of the members has
// found to be wrong, unless RecoverOptions.AcceptWrongState says that it is wanted.
var ErrWrongState = errors.New("the state in it was found to be wrong by a majority of the members")

// RecoverOptions say what the new cluster is.
type RecoverOptions struct {
	// Cluster is the id of the new cluster.
	Cluster proto.ClusterID
	// Bump and Now as for RestoreBackup.
	Bump uint64
	Now  time.Time
	// Configuration of the new cluster: the survivor, as a voter.
	Configuration raft.Configuration
	// Stage writes node.json into the directory in which the new files are made. It
	// takes its place together with them.
	Stage func(dir string) error
	// AcceptWrongState makes the new cluster also of a state that was found to be wrong.
	// The marker that says so goes aside with the other files.
	AcceptWrongState bool
}

// Recovered says what became of a directory.
type Recovered struct {
	Survivor Survivor
	// State of the new cluster. Its floor is its applied index.
	State *proto.StateRecord
	Why   Why
	// Aside is the directory with the files that were there before.
	Aside string
}

// Unfinished returns why no node may start on a directory, or nil: a restore or a
// recovery did not finish. Errors: ErrUnfinished, ErrRecovering.
func Unfinished(dir string) error {
	for name, why := range map[string]error{restoringFile: ErrUnfinished, recoveringFile: ErrRecovering} {
		if there, err := exists(dir, name); err != nil {
			return err
		} else if there {
			return fmt.Errorf("%s: %w", dir, why)
		}
	}
	return nil
}

// Recover makes the survivor's directory that of a new cluster. Kept is all that
// the log holds, committed or not: an entry that was acknowledged may be among
// those that this node was not told to be committed. The new cluster begins at a
// revision that the old one has not given out (see begin), also beyond the log's
// end, where the lost nodes may have been; below it everything answers as
// compacted, because what clients saw there may not be this history.
// It may be killed at any time and run again. No node may run on the directory; the
// caller sees to that.
// Errors: those of InspectSurvivor, ErrWrongState, ErrClock, ErrTooHigh.
func Recover(dir string, o RecoverOptions) (Recovered, error) {
	done, err := recoverDir(dir, o)
	if err != nil {
		return done, fmt.Errorf("recover %s: %w", dir, err)
	}
	return done, nil
}

func recoverDir(dir string, o RecoverOptions) (done Recovered, err error) {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	if o.Cluster == "" || len(o.Configuration.Servers) == 0 {
		return done, errors.New("the new cluster needs an id and a voter")
	}
	if wrong, err := exists(dir, wrongStateFile); err != nil {
		return done, err
	} else if wrong && !o.AcceptWrongState {
		return done, ErrWrongState
	}
	s, state, err := survivorIn(dir)
	if err != nil {
		return done, err
	}
	if s.Cluster == o.Cluster {
		return done, errors.New("the new cluster needs an id of its own")
	}
	first, why, err := begin(max(s.Applied, proto.Revision(s.LastIndex)), o.Now, o.Bump)
	if err != nil {
		return done, err
	}
	rec := state.StateRecord()
	rec.Applied, rec.Floor = uint64(first), uint64(first)
	rec.AppliedTerm = max(s.LastTerm, 1)
	rec.ClusterId = string(o.Cluster)
	stage := filepath.Join(dir, recoverNew)
	if err := os.RemoveAll(stage); err != nil {
		return done, err
	}
	if err := os.Mkdir(stage, dirMode); err != nil {
		return done, err
	}
	if err := writeRestored(stage, state, rec, o.Configuration); err != nil {
		return done, errors.Join(err, os.RemoveAll(stage))
	}
	if err := errors.Join(o.Stage(stage), syncDir(stage)); err != nil {
		return done, errors.Join(err, os.RemoveAll(stage))
	}
	failpoint("recover.staged")
	aside, err := unused(dir, RecoverAside)
	if err != nil {
		return done, err
	}
	if err := writeFile(dir, recoveringFile, []byte(aside)); err != nil {
		return done, err
	}
	done = Recovered{Survivor: s, State: rec, Why: why, Aside: filepath.Join(dir, aside)}
	return done, finishRecovery(dir)
}

// FinishRecovery does what is left of a recovery that was interrupted, and reports
// whether there was one.
func FinishRecovery(dir string) (bool, error) {
	there, err := exists(dir, recoveringFile)
	if err == nil && there {
		err = finishRecovery(dir)
	}
	if err != nil {
		return there, fmt.Errorf("recover %s: %w", dir, err)
	}
	return there, nil
}

// finishRecovery puts the new files into place. A file that is still among the new
// ones has not changed places: what has its name is the old one.
func finishRecovery(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, recoveringFile))
	if err != nil {
		return err
	}
	name := string(b)
	if !strings.HasPrefix(name, RecoverAside) || filepath.Base(name) != name {
		return fmt.Errorf("%s names %.100q: %w", recoveringFile, name, ErrDamaged)
	}
	stage, aside := filepath.Join(dir, recoverNew), filepath.Join(dir, name)
	if err := os.MkdirAll(aside, dirMode); err != nil {
		return err
	}
	for _, f := range recovered {
		there, err := exists(stage, f)
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		if err := setAside(dir, aside, f); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(stage, f), filepath.Join(dir, f)); err != nil {
			return err
		}
		failpoint("recover.placed." + f)
	}
	for _, f := range outdated {
		if err := setAside(dir, aside, f); err != nil {
			return err
		}
	}
	if err := errors.Join(syncDir(aside), syncDir(dir), os.RemoveAll(stage)); err != nil {
		return err
	}
	failpoint("recover.swapped")
	return errors.Join(remove(dir, recoveringFile), syncDir(dir))
}

// setAside moves a file out of the way, if it is there.
func setAside(dir, aside, f string) error {
	there, err := exists(dir, f)
	if err != nil || !there {
		return err
	}
	if err := os.Rename(filepath.Join(dir, f), filepath.Join(aside, f)); err != nil {
		return err
	}
	failpoint("recover.aside." + f)
	return nil
}

// unused returns a name that nothing in dir has.
func unused(dir, name string) (string, error) {
	for i := 1; ; i++ {
		try := name
		if i > 1 {
			try = fmt.Sprintf("%s.%d", name, i)
		}
		if there, err := exists(dir, try); err != nil || !there {
			return try, err
		}
	}
}
