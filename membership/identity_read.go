package membership

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/quorate/quorate/proto"
)

// ReadCluster returns the cluster that the data of a directory belongs to, as node.json
// says: none ("") before the node is part of one. It changes nothing, and may be called
// while a node has the directory.
func ReadCluster(dir string) (proto.ClusterID, error) {
	path := filepath.Join(dir, identityFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("identity: %w", err)
	}
	var f identityJSON
	if err := json.Unmarshal(data, &f); err != nil {
		return "", fmt.Errorf("identity: %s: %w", path, err)
	}
	if f.Version != identityVersion {
		return "", fmt.Errorf("identity: %s has version %d, this release knows %d", path, f.Version, identityVersion)
	}
	return f.Cluster, nil
}
