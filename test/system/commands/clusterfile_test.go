package commands

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
)

// TestClusterFile: programs read cluster.json. Its fields have the names that they had, and the files
// that it names are there once the cluster is ready.
func TestClusterFile(t *testing.T) {
	c := cluster.Start(t, 1)
	b, err := os.ReadFile(filepath.Join(c.Dir, "cluster.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubeconfig", "caFile", "adminCertFile", "adminKeyFile", "serviceAccountKeyFile"} {
		path, _ := file[name].(string)
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s %q: %v", name, path, err)
		}
	}
	nodes, _ := file["nodes"].([]any)
	if len(nodes) != 1 {
		t.Fatalf("nodes %v", file["nodes"])
	}
	node, _ := nodes[0].(map[string]any)
	for _, name := range []string{"name", "pid", "api", "peer", "dataDir", "log"} {
		if node[name] == nil {
			t.Errorf("the node has no %s: %v", name, node)
		}
	}
}
