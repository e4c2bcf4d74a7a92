package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// CheckTarget refuses a name that a file which is made must not take: root would replace a device
// by a file, and a link shows elsewhere. What is made is called what, such as "backup", and example is
// a name for it.
func CheckTarget(file, what, example string) error {
	info, err := os.Lstat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if dir := filepath.Dir(file); !isDir(dir) {
			return fmt.Errorf("there is no directory %s", dir)
		}
		return nil
	case err != nil:
		return err
	case info.Mode().IsRegular():
		return nil
	case info.IsDir():
		return fmt.Errorf("%s is a directory: give the name of a file, such as %s", file, filepath.Join(file, example))
	}
	return fmt.Errorf("%s is %s, which a %s does not replace: give the name of a regular file, or - for standard output", file, KindOfFile(info.Mode()), what)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
