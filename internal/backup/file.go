package backup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/quorate/quorate/internal/datadir"
)

// CheckTarget refuses a name that a backup must not take.
func CheckTarget(file string) error { return datadir.CheckTarget(file, "backup", "backup.q") }

// Write keeps a stream in a new file, reads that back, and gives it its name.
func Write(stream io.Reader, file string) (Info, error) {
	// A new name and O_EXCL: nothing that lies there is written to. Its mode is 0600.
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return Info{}, err
	}
	defer os.Remove(f.Name()) // there no more if all went well
	_, err = io.Copy(f, stream)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return Info{}, fmt.Errorf("the backup did not come whole: %w", err)
	}
	// Nothing is a backup before it was read back.
	b, err := Read(f.Name())
	if err != nil {
		return Info{}, fmt.Errorf("the backup is damaged: %w", err)
	}
	if err := CheckTarget(file); err != nil { // it may have come meanwhile
		return Info{}, err
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return Info{}, err
	}
	b.File = file
	return b, syncDir(filepath.Dir(file))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
