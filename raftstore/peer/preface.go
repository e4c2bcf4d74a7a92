package peer

import (
	"errors"
	"fmt"
	"io"

	"github.com/quorate/quorate/proto"
)

// A Raft stream begins with the dialer's cluster, which the Raft messages
// themselves do not carry:
//
//	| version (1) | length n (1) | cluster id (n) |
const prefaceVersion = 1

// ErrWrongCluster is returned for a stream or a call of a node that belongs to
// another cluster.
var ErrWrongCluster = errors.New("caller belongs to another cluster")

func appendPreface(b []byte, id proto.ClusterID) ([]byte, error) {
	if len(id) > 255 {
		return nil, fmt.Errorf("cluster id of %d bytes is too long", len(id))
	}
	return append(append(b, prefaceVersion, byte(len(id))), id...), nil
}

func readPreface(r io.Reader) (proto.ClusterID, error) {
	var b [2 + 255]byte
	if _, err := io.ReadFull(r, b[:2]); err != nil {
		return "", fmt.Errorf("read preface: %w", err)
	}
	if b[0] != prefaceVersion {
		return "", fmt.Errorf("preface version %d is not supported", b[0])
	}
	id := b[2 : 2+int(b[1])]
	if _, err := io.ReadFull(r, id); err != nil {
		return "", fmt.Errorf("read preface: %w", err)
	}
	return proto.ClusterID(id), nil
}

// sameCluster accepts everybody while either side has no cluster: a node that
// joins gets its first entries, and with them the cluster's id, on a Raft
// stream.
func sameCluster(ours, theirs proto.ClusterID) error {
	if ours != "" && theirs != "" && ours != theirs {
		return fmt.Errorf("%w: this node is in %s, the caller in %s", ErrWrongCluster, ours, theirs)
	}
	return nil
}
