//go:build linux

package lazyfs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"
)

// userVariable makes the test binary a user of the disk that is mounted on the
// directory it names. The process that serves a disk must not use it: what waits
// for the disk there stops threads that Go cannot take its processors from.
const userVariable = "LAZYFS_TEST_USER"

func TestMain(m *testing.M) {
	dir := os.Getenv(userVariable)
	if dir == "" {
		os.Exit(m.Run())
	}
	for _, step := range os.Args[1:] {
		if err := perform(dir, strings.Fields(step)); err != nil {
			fmt.Println(step+":", err)
			os.Exit(1)
		}
	}
}

// use starts a user of the disk that performs steps, and ends at the first that
// fails.
func use(dir string, steps ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.Command(os.Args[0], steps...)
	cmd.Env = append(os.Environ(), userVariable+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

// used performs steps, waits, and returns what they printed.
func used(dir string, steps ...string) string {
	cmd, out := use(dir, steps...)
	if err := cmd.Run(); err != nil && out.Len() == 0 {
		return err.Error()
	}
	return out.String()
}

func perform(dir string, step []string) error {
	at := func(i int) string { return filepath.Join(dir, step[i]) }
	switch step[0] {
	case "write": // NAME CONTENT [TIMES]
		content := []byte(step[2])
		if len(step) > 3 {
			n, err := strconv.Atoi(step[3])
			if err != nil {
				return err
			}
			content = bytes.Repeat(content, n)
		}
		f, err := os.OpenFile(at(1), os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.Write(content)
		return err
	case "sync":
		name := dir
		if len(step) > 1 {
			name = at(1)
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		return f.Sync()
	case "rename":
		return os.Rename(at(1), at(2))
	case "remove":
		return os.Remove(at(1))
	case "truncate":
		return os.Truncate(at(1), 0)
	case "cat":
		b, err := os.ReadFile(at(1))
		if err != nil {
			b = []byte("-")
		}
		fmt.Printf("%s", b)
		return nil
	case "bolt":
		return writeBolt(dir)
	}
	return fmt.Errorf("there is no step %q", step[0])
}

// writeBolt counts the keys 0, 1, ... in a database and adds more until that
// fails. It prints what it found and each key that was committed.
func writeBolt(dir string) error {
	db, err := bbolt.Open(filepath.Join(dir, "db"), 0o600, &bbolt.Options{NoFreelistSync: true})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if err := perform(dir, []string{"sync"}); err != nil {
		return err
	}
	found := 0
	if err := db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte("b")); b != nil {
			for ; b.Get([]byte(fmt.Sprint(found))) != nil; found++ {
			}
		}
		return nil
	}); err != nil {
		return err
	}
	fmt.Println("found", found)
	for k := found; ; k++ {
		if err := db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			if err != nil {
				return err
			}
			return b.Put([]byte(fmt.Sprint(k)), bytes.Repeat([]byte{byte(k)}, 3000))
		}); err != nil {
			return nil
		}
		fmt.Println("committed", k+1)
	}
}
