package playground

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// TestRemovedNode: a node that was removed from the cluster is not one to start: what the commands
// propose is about the others.
func TestRemovedNode(t *testing.T) {
	dir := t.TempDir()
	c := &cluster{dir: dir}
	for _, name := range []string{"n1", "n2", "n3"} {
		n := &Node{Name: name, DataDir: filepath.Join(dir, name), Log: filepath.Join(dir, name+".log")}
		must.OK(t, os.Mkdir(n.DataDir, 0o700))
		c.Nodes = append(c.Nodes, n)
	}
	removed := []byte(`{"version": 1, "nodeID": "3", "said": "this node was removed from the cluster"}`)
	must.OK(t, os.WriteFile(filepath.Join(c.Nodes[2].DataDir, "removed.json"), removed, 0o600))
	for _, run := range []struct {
		running []*Node
		ready   bool
		want    string
	}{
		{c.Nodes[:0], false, "0 of 2 nodes run, 0 ready\nRemoved from the cluster: n3\nStart:  "},
		{c.Nodes[:1], false, "1 of 2 nodes run, 1 ready\nRemoved from the cluster: n3\nStart the rest:  " + self() + " dev start n2 --data-dir "},
		{c.Nodes[:2], true, "2 of 2 nodes run, 2 ready\nRemoved from the cluster: n3\nRoles and lag:  "},
	} {
		for _, n := range run.running {
			if n.PID == 0 {
				n.PID = pretend(t, n)
			}
		}
		st := c.status(t.Context())
		for i := range st.Nodes[:2] {
			st.Nodes[i].Ready = st.Nodes[i].Running
		}
		var out bytes.Buffer
		must.OK(t, st.Print(&out))
		if !strings.Contains(out.String(), run.want) || !strings.Contains(out.String(), "n3     removed") || st.Ready() != run.ready {
			t.Errorf("ready: %v\n%s\nwant %q", st.Ready(), out.String(), run.want)
		}
	}
	if err := c.alreadyRuns(); strings.Contains(err.Error(), "n3") {
		t.Error(err)
	}
	if got := c.stopped(); len(got) > 0 {
		t.Errorf("to be started: %q", got)
	}
	// All of them were removed: there is nothing to start, or to measure.
	none := &cluster{dir: dir, Nodes: c.Nodes[2:]}
	st := none.status(t.Context())
	var out bytes.Buffer
	must.OK(t, st.Print(&out))
	if st.Ready() || !strings.Contains(out.String(), "0 of 0 nodes run, 0 ready\nRemoved from the cluster: n3\nBegin again without their data:  "+self()+" dev delete ") {
		t.Errorf("ready: %v\n%s", st.Ready(), out.String())
	}
	if _, err := none.target(); err == nil || !strings.Contains(err.Error(), "were removed from their cluster") {
		t.Errorf("to be measured: %v", err)
	}
}
