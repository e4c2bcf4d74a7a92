package playground

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/quorate/quorate/internal/words"
	"github.com/quorate/quorate/membership/pki"
)

// Delete stops a playground and removes what it has made. Other files in the directory stay.
func Delete(ctx context.Context, dir string, out io.Writer) error {
	c, unlock, err := lockCluster(ctx, dir)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.stopAndNote(ctx, out); err != nil {
		return err
	}
	left, err := c.remove()
	if err != nil {
		return err
	}
	if len(left) > 0 {
		fmt.Fprintf(out, "the playground in %s is deleted; not its own and still there: %s\n", rel(c.dir), some(left))
		return nil
	}
	fmt.Fprintf(out, "%s is deleted\n", rel(c.dir))
	return nil
}

// checkOwn refuses a directory for a new playground that holds anything: it is
// somebody's, who would have to pick our files out of it.
func checkOwn(dir string) error {
	names, err := foreign(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%s is not a playground, and not empty: it has %s. Give a new directory, or an empty one: --data-dir DIR", rel(dir), some(names))
}

// foreign are the names in a directory without those that a playground has before its
// cluster.json.
func foreign(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		name := e.Name()
		// A directory that is a file system's root has lost+found.
		if name != lockFile && name != "lost+found" && !strings.HasPrefix(name, ".cluster.json.") {
			names = append(names, name)
		}
	}
	return names, err
}

// some is the beginning of a long list of names.
func some(names []string) string {
	const most = 3
	if len(names) > most+1 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return words.And(names)
}

// remove removes what a node has: its settings, data and log.
func (n *Node) remove() error {
	// The directories are checked when cluster.json is read: they lead nowhere else.
	return errors.Join(os.RemoveAll(n.DataDir), removeFile(n.settingsFile()), removeFile(n.DataDir+".log"))
}

// remove removes a playground whose nodes do not run, and returns what is left in its
// directory, which others have put there. cluster.json goes last: until then the command
// can be repeated.
func (c *cluster) remove() (left []string, err error) {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.remove())
		for _, program := range pki.Components { // also of a control plane that there is no more
			errs = append(errs, removeFile(filepath.Join(c.dir, componentLog(program, n))))
		}
	}
	if filepath.Dir(c.Kubeconfig) == c.dir {
		errs = append(errs, removeFile(c.Kubeconfig))
	}
	errs = append(errs, removeFile(filepath.Join(c.dir, "token")), os.RemoveAll(filepath.Join(c.dir, "pki")))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := removeFile(clusterFile(c.dir)); err != nil {
		return nil, err
	}
	if err := removeFile(filepath.Join(c.dir, lockFile)); err != nil {
		return nil, err
	}
	if left, err = foreign(c.dir); err == nil && len(left) == 0 {
		// What cannot be removed, where another file system is mounted, is empty: that was
		// all that was asked.
		_ = os.Remove(c.dir)
	}
	return left, err
}

func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
