package churn

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Files are bytes that the file system has allocated for what is in a data directory.
type Files struct {
	State int64 `json:"stateBytes"` // state.db, and a copy of it that is being made
	Log   int64 `json:"logBytes"`   // without its reserve
	Spare int64 `json:"spareBytes"` // the log's reserve
	Rest  int64 `json:"restBytes"`
}

// Sum is that of all.
func (f Files) Sum() int64 { return f.State + f.Log + f.Spare + f.Rest }

// add counts a file by its path below the data directory.
func (f *Files) add(path string, allocated int64) {
	inLog := strings.HasPrefix(filepath.ToSlash(path), "raft-log/")
	switch {
	case inLog && strings.HasSuffix(path, ".spare"):
		f.Spare += allocated
	case inLog:
		f.Log += allocated
	case strings.HasPrefix(path, "state.db"):
		f.State += allocated
	default:
		f.Rest += allocated
	}
}

// filesOf looks at a data directory. A file that goes meanwhile counts nothing.
func filesOf(dir string) (f Files, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil && path == dir {
			return err
		}
		if err != nil || entry.IsDir() {
			return ignoreGone(err)
		}
		info, err := entry.Info()
		if err != nil {
			return ignoreGone(err)
		}
		below, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f.add(below, allocated(info))
		return nil
	})
	return f, err
}

func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// allocated is what a file takes of its file system: st_blocks counts 512 bytes, whatever a block is there.
func allocated(info fs.FileInfo) int64 { return info.Sys().(*syscall.Stat_t).Blocks * 512 }
