package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// The files of a data directory. Those that end in .new, .receiving or .tmp are
// unfinished and are removed at the next start.
const (
	stateFile     = "state.db"
	newSuffix     = ".new"
	receivingFile = "state.db.receiving"
	incomingFile  = "state.db.incoming"
	metaFile      = "snapshot.meta"
	// spareFile is the file that the next snapshot.meta is written to. It is never read.
	spareFile = "snapshot.meta.spare"
	// firstFile is what the first one is written to.
	firstFile = "snapshot.meta.first"
	// stableFile has Raft's term and vote.
	stableFile = "raft.db"
	// segmentDir has the log's entries.
	segmentDir = "raft-log"
	// restoringFile marks a directory that a backup is being restored into.
	restoringFile = "restoring"

	fileMode = 0o600
	dirMode  = 0o700
)

// failpoint is called between any two steps whose order matters. Tests set it
// to end the process there.
var failpoint = func(string) {}

// syncFile makes a file's content and size durable.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}

// rename makes a finished and synced file visible under its final name. After
// an error it is unknown which of the two names survives a power loss.
func rename(dir, from, to string) error {
	if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
		return err
	}
	failpoint("rename." + to)
	return syncDir(dir)
}

// writeFile replaces a small file as a whole: readers, and the next start after
// a crash, see the old content or the new.
func writeFile(dir, name string, content []byte) error {
	tmp := filepath.Join(dir, name+".tmp")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		failpoint("write." + name)
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", tmp, err), os.Remove(tmp))
	}
	failpoint("synced." + name)
	return rename(dir, name+".tmp", name)
}

// remove deletes a file, if it is there.
func remove(dir, name string) error {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func exists(dir, name string) (bool, error) {
	_, err := os.Lstat(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
