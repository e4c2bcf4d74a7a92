package datadir

import (
	"os"

	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
)

// Recover makes the directory of a survivor that of the only voter of a new cluster, whose name is
// that of the old node. Its id is another: a node of the old cluster that comes back finds another
// node where the survivor was, whatever it asks. bump and the errors are as those of Restore; a
// state that was found to be wrong is refused unless acceptWrong says otherwise. The caller has
// locked the directory.
func Recover(dir string, old *membership.Identity, peerAddress string, bump uint64, acceptWrong bool) (done disk.Recovered, id proto.NodeID, err error) {
	scratch, err := os.MkdirTemp(dir, ".recover-*")
	if err != nil {
		return done, "", err
	}
	defer os.RemoveAll(scratch)
	identity, err := membership.LoadIdentity(scratch, old.Name())
	if err != nil {
		return done, "", err
	}
	done, err = disk.Recover(dir, disk.RecoverOptions{
		Cluster: newCluster(), Bump: bump, AcceptWrongState: acceptWrong,
		Configuration: alone(identity, peerAddress), Stage: moveIdentity(scratch),
	})
	return done, identity.ID(), err
}
