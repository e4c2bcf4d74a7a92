package membership

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/quorate/quorate/membership/pki"
	"github.com/quorate/quorate/proto"
)

const (
	identityFile    = "node.json"
	identityVersion = 1
)

// raftFiles are those that a node makes after node.json, or together with it.
var raftFiles = []string{"raft.db", "raft-log", "state.db", "snapshot.meta"}

// Identity is who this node is: node.json in its data directory. The node id is
// random, made once, and goes with the directory: an operator that wipes the directory
// gets a new node. Methods may be called concurrently.
type Identity struct {
	path string
	id   proto.NodeID
	name string

	mu      sync.Mutex
	cluster proto.ClusterID // may be ahead of what is on disk while forming
	saved   proto.ClusterID
}

type identityJSON struct {
	Version int             `json:"version"`
	NodeID  proto.NodeID    `json:"nodeID"`
	Name    string          `json:"name"`
	Cluster proto.ClusterID `json:"clusterID,omitempty"`
}

// LoadIdentity reads node.json in dir, or makes it with a new id. A name that
// is not empty replaces the stored one; the default name is the beginning of
// the id. Errors: ErrIdentityLost.
func LoadIdentity(dir, name string) (*Identity, error) {
	id := &Identity{path: filepath.Join(dir, identityFile)}
	data, err := os.ReadFile(id.path)
	var f identityJSON
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := noRaftFiles(dir); err != nil {
			return nil, err
		}
		b := make([]byte, 16)
		rand.Read(b)
		f = identityJSON{NodeID: proto.NodeID(hex.EncodeToString(b))}
	case err != nil:
		return nil, fmt.Errorf("identity: %w", err)
	default:
		if err := json.Unmarshal(data, &f); err != nil {
			return nil, fmt.Errorf("identity: %s: %w", id.path, err)
		}
		if f.Version != identityVersion {
			return nil, fmt.Errorf("identity: %s has version %d, this release knows %d", id.path, f.Version, identityVersion)
		}
		if b, err := hex.DecodeString(string(f.NodeID)); err != nil || len(b) != 16 {
			return nil, fmt.Errorf("identity: %s: bad node id %q", id.path, f.NodeID)
		}
	}
	if name == "" {
		name = f.Name
	}
	if name == "" {
		name = "node-" + string(f.NodeID[:8])
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	id.id, id.name, id.cluster, id.saved = f.NodeID, name, f.Cluster, f.Cluster
	if err != nil || name != f.Name { // new, or renamed
		return id, id.writeLocked()
	}
	return id, nil
}

// noRaftFiles fails with ErrIdentityLost if a node has run in dir.
func noRaftFiles(dir string) error {
	for _, name := range raftFiles {
		_, err := os.Lstat(filepath.Join(dir, name))
		if err == nil {
			return fmt.Errorf("%s has %s: %w", dir, name, ErrIdentityLost)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("identity: %w", err)
		}
	}
	return nil
}

// ID returns the node's id.
func (i *Identity) ID() proto.NodeID { return i.id }

// Name returns the node's name.
func (i *Identity) Name() string { return i.name }

// Cluster returns the cluster that this node belongs to, or "". It is what
// raftstore and the peer port are configured with.
func (i *Identity) Cluster() proto.ClusterID {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.cluster
}

// setCluster sets the cluster in memory. It reaches the disk with saveCluster,
// after the Raft state did: an id on disk without Raft state means lost state.
func (i *Identity) setCluster(c proto.ClusterID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cluster = c
}

func (i *Identity) saveCluster() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.saved == i.cluster {
		return nil
	}
	return i.writeLocked()
}

func (i *Identity) writeLocked() error {
	data, err := json.MarshalIndent(identityJSON{identityVersion, i.id, i.name, i.cluster}, "", "  ")
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	if err := pki.WriteFile(i.path, append(data, '\n'), pki.ModeSecret); err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	i.saved = i.cluster
	return nil
}

// savedCluster returns the cluster on disk.
func (i *Identity) savedCluster() proto.ClusterID {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.saved
}

// checkName accepts what can stand in a host name, a label and a log.
func checkName(name string) error {
	if name == "" || len(name) > 63 {
		return fmt.Errorf("node name %q: 1 to 63 characters", name)
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_':
		default:
			return fmt.Errorf("node name %q: character %q is not allowed", name, c)
		}
	}
	return nil
}
