package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/spf13/cobra"
)

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
		Args: exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			done, err := r.run(args[0])
			if errors.Is(err, disk.ErrClock) {
				return fmt.Errorf("%w; set it, or say with --bump-revision where to begin", err)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s holds cluster %s at revision %d\n%s\nput the secret in a token file (see 'quorate node --help') and start it:\n  quorate node --data-dir %s --name %s --peer-advertise-address %s --token-file FILE\n",
				r.dir, done.ClusterId, done.Applied, beginning(done), r.dir, r.name, r.peerAddress)
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
	switch by := done.Applied - uint64(done.Backup); done.Why {
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
