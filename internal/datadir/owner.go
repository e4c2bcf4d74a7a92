package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// CheckUser refuses that root works offline on a directory of another user: what root
// makes there the node of that user cannot read, and what lies there may lead root
// elsewhere. command is what the user types. A directory that is absent belongs to the
// user of the one that it is to be made in.
func CheckUser(command, dir string) error {
	return checkUserIs(os.Geteuid(), command, dir)
}

func checkUserIs(euid int, command, dir string) error {
	if euid != 0 {
		return nil
	}
	owner, at, err := ownerOf(dir)
	if err != nil || owner == 0 {
		return err
	}
	as := fmt.Sprintf("as the user with the id %d", owner)
	if u, err := user.LookupId(strconv.FormatUint(uint64(owner), 10)); err == nil {
		as = fmt.Sprintf("as %s: runuser -u %s -- %s", u.Username, u.Username, command)
	}
	return fmt.Errorf("%s belongs to another user, and this is root: the node could not read what root makes there, and what lies there could lead root elsewhere. Do it %s", at, as)
}

// ownerOf is the user of a directory, or of the nearest one above it that is there.
func ownerOf(dir string) (uid uint32, at string, err error) {
	if at, err = filepath.Abs(dir); err != nil {
		return 0, "", err
	}
	for {
		info, err := os.Stat(at)
		if err == nil {
			st, ok := info.Sys().(*syscall.Stat_t)
			if !ok {
				return 0, at, fmt.Errorf("%s: this system does not say whose it is", at)
			}
			return st.Uid, at, nil
		}
		above := filepath.Dir(at)
		if !errors.Is(err, fs.ErrNotExist) || above == at {
			return 0, at, err
		}
		at = above
	}
}

// CheckOwnFiles refuses a data directory with links and special files in it: what is moved
// and replaced there must be the directory's own.
func CheckOwnFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() && !e.IsDir() {
			return fmt.Errorf("%s is %s: nothing was changed; put the file itself there", filepath.Join(dir, e.Name()), KindOfFile(e.Type()))
		}
	}
	return nil
}

// KindOfFile is what a file is that is neither regular nor a directory, in words.
func KindOfFile(m fs.FileMode) string {
	switch {
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeDevice != 0:
		return "a device"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a special file"
}
