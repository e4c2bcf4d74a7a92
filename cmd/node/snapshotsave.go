package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/quorate/quorate/internal/datadir"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/node"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func snapshotSaveCommand() *cobra.Command {
	var a access
	c := &cobra.Command{
		Use:   "save FILE",
		Short: "Save a backup of the whole state from a running node",
		Long: `Reads the state of one node, history included, reads it back and checks it, and
then gives it its name. FILE may be - for standard output; a file of that name is
replaced only if it is a regular one. The backup holds Secrets in clear: its mode is
0600.

It is taken from the first node of the kubeconfig that a majority confirms, so that
nothing acknowledged before is missing. With --context from the node of that context
if it answers, and if there is no majority from any: then a warning on standard
error says so.`,
		Args: exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error { return saveBackup(cmd, &a, args[0]) },
	}
	a.flags(c)
	return c
}

func saveBackup(cmd *cobra.Command, a *access, file string) error {
	if file != "-" {
		if err := checkTarget(file); err != nil {
			return err
		}
	} else if f, ok := cmd.OutOrStdout().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return errors.New("standard output is a terminal: send the backup to a file or a program")
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	defer client.Close()
	stream, err := openBackup(cmd.Context(), client, a.context == "")
	if err != nil {
		return err
	}
	defer stream.Close()
	if file == "-" {
		// The summary goes where it does not spoil the backup.
		b, err := parseBackup(io.TeeReader(stream, cmd.OutOrStdout()))
		if err != nil {
			return fmt.Errorf("what was written is not a whole backup: %w", err)
		}
		return report(cmd, b, cmd.ErrOrStderr(), a.output)
	}
	b, err := writeBackup(stream, file)
	if err != nil {
		return err
	}
	return report(cmd, b, cmd.OutOrStdout(), a.output)
}

// openBackup asks the nodes in turn. The best is the one that a majority confirms; who
// has chosen a node gets what that one has.
func openBackup(ctx context.Context, client *membership.AdminClient, best bool) (io.ReadCloser, error) {
	if best {
		if stream, err := client.Open(ctx, node.SnapshotPath+node.ConfirmedQuery); err == nil || ctx.Err() != nil {
			return stream, err
		}
	}
	return client.Open(ctx, node.SnapshotPath)
}

func report(cmd *cobra.Command, b backupInfo, to io.Writer, output string) error {
	if why := b.Taken.warning(); why != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), why)
	}
	return b.print(to, output)
}

// checkTarget refuses a name that a backup must not take: root would replace a device
// by a file, and a link shows elsewhere.
func checkTarget(file string) error {
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
		return fmt.Errorf("%s is a directory: give the name of a file, such as %s", file, filepath.Join(file, "backup.q"))
	}
	return fmt.Errorf("%s is %s, which a backup does not replace: give the name of a regular file, or - for standard output", file, datadir.KindOfFile(info.Mode()))
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// writeBackup keeps a stream in a new file, reads that back, and gives it its name.
func writeBackup(stream io.Reader, file string) (backupInfo, error) {
	// A new name and O_EXCL: nothing that lies there is written to. Its mode is 0600.
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return backupInfo{}, err
	}
	defer os.Remove(f.Name()) // there no more if all went well
	_, err = io.Copy(f, stream)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return backupInfo{}, fmt.Errorf("the backup did not come whole: %w", err)
	}
	// Nothing is a backup before it was read back.
	b, err := readBackup(f.Name())
	if err != nil {
		return backupInfo{}, fmt.Errorf("the backup is damaged: %w", err)
	}
	if err := checkTarget(file); err != nil { // it may have come meanwhile
		return backupInfo{}, err
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return backupInfo{}, err
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
