package datadir

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Restore makes the directory of the first node of a new cluster from a backup. dir must be empty
// or absent; name and peerAddress are those with which the node will run. New revisions begin bump
// above the backup's, or, if it is 0, where the clock says (see package disk, also for the errors).
// If it fails, what it has made is gone.
func Restore(dir, name, peerAddress string, bump uint64, backup io.Reader) (_ disk.Restored, err error) {
	// The identity is made beside the directory, which must be empty for the
	// restore, and moved in when the state is there: before the directory counts as whole.
	parent := filepath.Dir(filepath.Clean(dir))
	made, err := disk.MakeDirs(parent)
	if err != nil {
		return disk.Restored{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, disk.RemoveDirs(made))
		}
	}()
	scratch, err := os.MkdirTemp(parent, ".restore-*")
	if err != nil {
		return disk.Restored{}, err
	}
	defer os.RemoveAll(scratch)
	identity, err := membership.LoadIdentity(scratch, name)
	if err != nil {
		return disk.Restored{}, err
	}
	done, err := disk.RestoreBackup(dir, backup, disk.RestoreOptions{
		Cluster: newCluster(), Bump: bump, Configuration: alone(identity, peerAddress),
		Supports: mvcc.FeatureVersion, Stage: moveIdentity(scratch),
	})
	if err != nil {
		return disk.Restored{}, err
	}
	return done, nil
}

// newCluster is the id of a cluster that there was not before.
func newCluster() proto.ClusterID {
	id := make([]byte, 16)
	rand.Read(id)
	return proto.ClusterID(hex.EncodeToString(id))
}

// alone is the configuration of a cluster of one node.
func alone(identity *membership.Identity, peerAddress string) raft.Configuration {
	return raft.Configuration{Servers: []raft.Server{
		{ID: raft.ServerID(identity.ID()), Address: raft.ServerAddress(peerAddress), Suffrage: raft.Voter},
	}}
}

// moveIdentity has an identity come into a directory when the state is there.
func moveIdentity(scratch string) func(dir string) error {
	return func(dir string) error {
		return os.Rename(filepath.Join(scratch, "node.json"), filepath.Join(dir, "node.json"))
	}
}
