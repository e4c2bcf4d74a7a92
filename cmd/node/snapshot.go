package main

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/membership/pki"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/spf13/cobra"
)

const snapshotPath = "/quorate/v1/snapshot"

// saveSnapshot streams a backup of this node's state. A break in the stream
// shows: the file then has no valid end.
func (n *node) saveSnapshot(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "the server does not allow this method", http.StatusMethodNotAllowed)
		return
	}
	n.log.Info("a backup is sent: it holds everything, Secrets in clear included", "user", userName(r), "from", r.RemoteAddr)
	// It takes as long as it takes.
	if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if _, err := n.store.SaveSnapshot(w); err != nil {
		n.log.Error("a backup was not sent whole", "error", err)
		panic(http.ErrAbortHandler) // ends the stream visibly broken
	}
}

func snapshotCommand() *cobra.Command {
	c := &cobra.Command{Use: "snapshot", Short: "Save, inspect, verify and restore backups"}
	c.AddCommand(snapshotSaveCommand(), snapshotRestoreCommand(),
		&cobra.Command{
			Use: "inspect FILE", Short: "Say what a backup holds", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return inspectSnapshot(cmd.OutOrStdout(), args[0]) },
		},
		&cobra.Command{
			Use: "verify FILE", Short: "Read a backup to its end and check every checksum", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				if err := verifySnapshot(args[0]); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is whole\n", args[0])
				return err
			},
		})
	return c
}

func verifySnapshot(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := disk.Verify(f); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func inspectSnapshot(w io.Writer, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	rec, stats, err := disk.Inspect(f)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	_, err = fmt.Fprintf(w, "cluster:   %s\nrevision:  %d\nfloor:     %d\nhash:      %016x\nversions:  %d\nsize:      %s\n",
		rec.ClusterId, rec.Applied, rec.Floor, rec.Hash, stats.Versions, size(uint64(stats.Bytes)))
	return err
}

func snapshotSaveCommand() *cobra.Command {
	var a access
	c := &cobra.Command{
		Use: "save FILE", Short: "Save a backup of the whole state from a running node", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := a.load()
			if err != nil {
				return err
			}
			partial := args[0] + ".partial"
			defer os.Remove(partial) // there no more if all went well
			if err := downloadSnapshot(cmd, k, partial); err != nil {
				return err
			}
			// Nothing is a backup before it was read back.
			if err := verifySnapshot(partial); err != nil {
				return fmt.Errorf("the backup is damaged: %w", err)
			}
			if err := os.Rename(partial, args[0]); err != nil {
				return err
			}
			return inspectSnapshot(cmd.OutOrStdout(), args[0])
		},
	}
	a.flags(c)
	return c
}

func downloadSnapshot(cmd *cobra.Command, k pki.Kubeconfig, to string) (err error) {
	cert, err := tls.X509KeyPair(k.Cert, k.Key)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(k.CA)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:       &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   5 * time.Second,
		ResponseHeaderTimeout: time.Minute,
	}}
	defer client.CloseIdleConnections()
	var errs []error
	for _, e := range k.Endpoints {
		req, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, strings.TrimSuffix(e.Server, "/")+snapshotPath, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
			errs = append(errs, fmt.Errorf("%s: %s: %s", e.Server, resp.Status, strings.TrimSpace(string(text))))
			continue
		}
		// The backup holds everything, secrets included: no file or link that lies there is
		// written to, with whatever mode it has.
		if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, resp.Body)
		return errors.Join(err, f.Sync(), f.Close())
	}
	return errors.Join(errs...)
}

// snapshotRestoreCommand makes the first node of a new cluster from a backup.
func snapshotRestoreCommand() *cobra.Command {
	var r restore
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make a new data directory from a backup",
		Long: `Makes the data directory of the first node of a NEW cluster: a new cluster id, so
that members of the old cluster are refused; new revisions begin at what the clock
says, 100,000 for each second since 1970, so that none is given out again, also
when a backup was restored before (objects keep the resourceVersion that they
have); and watches and exact reads from before answer 410, so that every client
lists again. Start the node with 'quorate node' and the same --name and
--peer-advertise-address, then let further nodes join with empty directories: do
not restore the backup for each of them, that would make clusters of one.

The clock of this machine must be right. If it cannot be, --bump-revision says how
far above the backup the new revisions begin: more than every cluster that was made
of this backup, of later ones, or of the same one earlier can have gone on.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			done, err := r.run(args[0])
			if errors.Is(err, disk.ErrClock) {
				return fmt.Errorf("%w; set it, or say with --bump-revision where to begin", err)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s holds cluster %s at revision %d\n%s\nput the secret in a token file (see 'quorate node --help') and start it:\n  quorate node --data-dir %s --name %s --peer-advertise-address %s --token-file FILE\n",
				r.dir, done.State.ClusterId, done.State.Applied, beginning(done), r.dir, r.name, r.peerAddress)
			return err
		},
	}
	c.Flags().StringVar(&r.dir, "data-dir", "", "the new data directory; must be empty or absent")
	c.Flags().StringVar(&r.name, "name", "n1", "name of the node")
	c.Flags().StringVar(&r.peerAddress, "peer-advertise-address", "127.0.0.1:7443", "peer address of the node")
	c.Flags().Uint64Var(&r.bump, "bump-revision", 0, "begin this far above the backup's revision, whatever the clock says (default: the clock decides)")
	_ = c.MarkFlagRequired("data-dir")
	return c
}

// beginning says why the new cluster begins where it does.
func beginning(done disk.Restored) string {
	switch by := done.State.Applied - uint64(done.Backup); done.Why {
	case disk.ByBump:
		return fmt.Sprintf("  the backup is at revision %d, and --bump-revision adds %d; the clock was not asked. Revisions are given out again if another cluster\n  of this backup's line has gone on further than that.", done.Backup, by)
	case disk.BehindBackup:
		return fmt.Sprintf("  the backup is at revision %d, which is ahead of this machine's clock: the revision was bumped by hand once, or a clock is or was wrong.\n  So the new cluster begins %d above the backup. If this backup, or a later one, was restored before, restore it again with a larger --bump-revision.", done.Backup, by)
	default:
		return fmt.Sprintf("  the backup is at revision %d; the new cluster begins where this machine's clock says, above all that any cluster before it has given out.", done.Backup)
	}
}

// restore is what the command is told.
type restore struct {
	dir, name, peerAddress string
	bump                   uint64
}

// run makes the data directory. If it fails, no node starts from it.
func (r restore) run(file string) (disk.Restored, error) {
	f, err := os.Open(file)
	if err != nil {
		return disk.Restored{}, err
	}
	defer f.Close()
	// The identity is made beside the directory, which must be empty for the
	// restore, and moved in when the state is there.
	parent := filepath.Dir(filepath.Clean(r.dir))
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return disk.Restored{}, err
	}
	scratch, err := os.MkdirTemp(parent, ".restore-*")
	if err != nil {
		return disk.Restored{}, err
	}
	defer os.RemoveAll(scratch)
	identity, err := membership.LoadIdentity(scratch, r.name)
	if err != nil {
		return disk.Restored{}, err
	}
	id := make([]byte, 16)
	rand.Read(id)
	done, err := disk.RestoreBackup(r.dir, f, disk.RestoreOptions{
		Cluster: proto.ClusterID(hex.EncodeToString(id)), Bump: r.bump,
		Configuration: raft.Configuration{Servers: []raft.Server{
			{ID: raft.ServerID(identity.ID()), Address: raft.ServerAddress(r.peerAddress), Suffrage: raft.Voter},
		}},
	})
	if err != nil {
		return disk.Restored{}, err
	}
	return done, os.Rename(filepath.Join(scratch, "node.json"), filepath.Join(r.dir, "node.json"))
}
