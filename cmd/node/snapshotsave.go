package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/proto"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// snapshotPath serves a backup of the node that is asked. With the query
// ?confirmed=true a node that no majority confirms answers 503 instead.
const (
	snapshotPath   = "/quorate/v1/snapshot"
	confirmedQuery = "?confirmed=true"
)

// saveSnapshot streams a backup of this node's state. A break in the stream
// shows: the file then has no valid end.
func (n *node) saveSnapshot(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "the server does not allow this method", http.StatusMethodNotAllowed)
		return
	}
	about := n.describeBackup(r.Context())
	if !about.Confirmed && r.URL.Query().Get("confirmed") == "true" {
		http.Error(w, fmt.Sprintf("%s reaches no majority: %s", about.NodeName, about.NotConfirmed), http.StatusServiceUnavailable)
		return
	}
	n.log.Info("a backup is sent: it holds everything, Secrets in clear included", "user", userName(r), "from", r.RemoteAddr, "confirmed", about.Confirmed)
	// It takes as long as it takes, if its client goes on reading.
	w.Header().Set("Content-Type", "application/octet-stream")
	if _, err := n.store.SaveSnapshot(movingAnswer(w, backupStall), about); err != nil {
		n.log.Error("a backup was not sent whole", "error", err)
		panic(http.ErrAbortHandler) // ends the stream visibly broken
	}
}

// describeBackup says what a backup that is taken now is, after it has waited until
// this node has all that was acknowledged, if a majority can say what that is.
func (n *node) describeBackup(ctx context.Context) *proto.Backup {
	_, err := n.reader.Await(ctx, consistency.Plan{Mode: consistency.MostRecent})
	st := n.manager.LocalStatus(ctx)
	b := &proto.Backup{
		TakenUnixMs: time.Now().UnixMilli(), NodeId: string(n.identity.ID()), NodeName: n.identity.Name(), Version: buildVersion(),
		Role: st.Role, LastContactMs: st.LastContactMs, Confirmed: err == nil,
	}
	if err != nil {
		for next := err; next != nil; next = errors.Unwrap(next) {
			b.NotConfirmed = next.Error() // the innermost: what is around it speaks of a request
		}
	}
	return b
}

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
		if stream, err := client.Open(ctx, snapshotPath+confirmedQuery); err == nil || ctx.Err() != nil {
			return stream, err
		}
	}
	return client.Open(ctx, snapshotPath)
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
	return fmt.Errorf("%s is %s, which a backup does not replace: give the name of a regular file, or - for standard output", file, kindOfFile(info.Mode()))
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func kindOfFile(m fs.FileMode) string {
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
