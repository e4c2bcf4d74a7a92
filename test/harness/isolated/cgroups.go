//go:build linux

package isolated

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// CgroupMount is where cgroups are.
const CgroupMount = "/sys/fs/cgroup"

// Cgroup is that of the run, below the root of each hierarchy. What is below it goes with the run.
func Cgroup() string { return os.Getenv(cgroupVariable) }

// Unified reports whether there is one hierarchy of cgroups (v2) in place of one for each
// controller (v1).
func Unified() bool {
	_, err := os.Stat(filepath.Join(CgroupMount, "cgroup.controllers"))
	return err == nil
}

// Hierarchies are the roots of all that can be written.
func Hierarchies() ([]string, error) {
	if Unified() {
		return []string{CgroupMount}, nil
	}
	all, err := filepath.Glob(filepath.Join(CgroupMount, "*", "cgroup.procs"))
	if err != nil || len(all) == 0 {
		return nil, fmt.Errorf("%s has no hierarchies: %w", CgroupMount, err)
	}
	var roots []string
	for _, procs := range all {
		root := filepath.Dir(procs)
		// cpu and cpuacct may be names of one hierarchy.
		if real, err := filepath.EvalSymlinks(root); err == nil && !slices.Contains(roots, real) {
			roots = append(roots, real)
		}
	}
	return roots, nil
}

// MakeCgroup makes a cgroup, which may be below another of ours, in all hierarchies.
func MakeCgroup(name string) error {
	roots, err := Hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		// A cgroup of v1 has no processors and no memory nodes until it is given some.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if b, err := os.ReadFile(filepath.Join(dir, "..", file)); err == nil && filepath.Base(root) == "cpuset" {
				if err := os.WriteFile(filepath.Join(dir, file), b, 0o644); err != nil {
					return err
				}
			}
		}
		if Unified() {
			control := filepath.Join(dir, "cgroup.subtree_control")
			if err := os.WriteFile(control, []byte("+cpu +cpuset +memory +pids"), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// RemoveCgroups removes a cgroup and those below it. The kernel may still be busy with the
// processes that were in them.
func RemoveCgroups(name string) error {
	roots, err := Hierarchies()
	if err != nil {
		return err
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for _, root := range roots {
		end := time.After(10 * time.Second)
		for {
			err := removeCgroup(filepath.Join(root, name))
			if err == nil {
				break
			}
			select {
			case <-end:
				return err
			case <-look.C:
			}
		}
	}
	return nil
}

func removeCgroup(dir string) error {
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	slices.Reverse(all)
	for _, d := range all {
		if e := unix.Rmdir(d); e != nil && !errors.Is(e, unix.ENOENT) {
			err = errors.Join(err, fmt.Errorf("remove cgroup %s: %w", d, e))
		}
	}
	return err
}
