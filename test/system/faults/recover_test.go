package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestRecover loses the majority of five for good: all nodes are killed under
// writers, and the directories of three are deleted. Of the two survivors the one
// whose log ends highest is recovered with one command; it serves all that was
// acknowledged and is in its log, and nodes with empty directories join it.
func TestRecover(t *testing.T) {
	cluster.SkipInShort(t, "it measures how long a fault lasts")
	c := cluster.Start(t, 5)
	var mu sync.Mutex
	acked := map[string]uint64{} // resourceVersion by name
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for w, n := range c.Nodes() {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("w%d-%d", w, i)
				resp, body, err := n.Do(t, http.MethodPost, cluster.ConfigMaps, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
				if err != nil || resp.StatusCode != http.StatusCreated {
					continue // the nodes are being killed
				}
				var o struct {
					Metadata struct{ ResourceVersion string }
				}
				if json.Unmarshal(body, &o) == nil {
					at := cluster.Revision(t, o.Metadata.ResourceVersion)
					mu.Lock()
					acked[name] = at
					mu.Unlock()
				}
			}
		})
	}
	cluster.Await(t, 30*time.Second, "the writers write", func() string {
		mu.Lock()
		defer mu.Unlock()
		if len(acked) < 100 {
			return fmt.Sprint(len(acked), " writes were acknowledged")
		}
		return ""
	})
	c.Kill(t, c.Nodes()...)
	close(stop)
	writers.Wait()
	for _, n := range c.Nodes()[:3] {
		must.OK(t, os.RemoveAll(filepath.Join(c.Dir, n.Name)))
	}
	end := func(n *cluster.Node) (term, index uint64) {
		out := c.Quorate(t, "recover", "--inspect", "--data-dir", filepath.Join(c.Dir, n.Name))
		for line := range strings.Lines(out) {
			if _, err := fmt.Sscanf(line, "log ends: %d, of term %d", &index, &term); err == nil {
				return term, index
			}
		}
		t.Fatalf("no end of the log in:\n%s", out)
		return 0, 0
	}
	best, other := c.Nodes()[3], c.Nodes()[4]
	term, last := end(best)
	if term4, last4 := end(other); term4 > term || term4 == term && last4 > last {
		best, other, last = other, best, last4
	}
	dir := filepath.Join(c.Dir, best.Name)
	if out, err := c.TryQuorate(t, "recover", "--data-dir", dir); err == nil || !strings.Contains(out, "--yes") {
		t.Errorf("without a terminal and without --yes: %v\n%s", err, out)
	}
	t.Log(c.Quorate(t, "recover", "--data-dir", dir, "--yes"))
	if out, err := c.TryQuorate(t, "recover", "--data-dir", dir, "--yes"); err == nil || !strings.Contains(out, "only voter") {
		t.Errorf("a second time: %v\n%s", err, out)
	}
	c.Restart(t, best)
	if out, err := c.TryQuorate(t, "recover", "--inspect", "--data-dir", dir); err == nil || !strings.Contains(out, "in use") {
		t.Errorf("beside the running node: %v\n%s", err, out)
	}

	kept := 0
	for name, at := range acked {
		body, resp, err := best.Get(t, cluster.ConfigMaps+"/"+name)
		switch {
		case err != nil:
			t.Fatal(err)
		case resp.StatusCode == http.StatusOK:
			kept++
		case at <= last:
			t.Errorf("%s was acknowledged at %d, the log ends at %d: %s", name, at, last, body)
		}
	}
	t.Logf("%d of %d acknowledged writes are there; the log ended at %d", kept, len(acked), last)
	status, body := best.Send(t, http.MethodPost, cluster.ConfigMaps, `{"metadata":{"name":"after"}}`)
	if status != http.StatusCreated {
		t.Fatalf("a write: %d %s", status, body)
	}
	after := cluster.Revision(t, resourceVersion(t, best, "after"))
	for name, at := range acked {
		if at >= after {
			t.Fatalf("revisions are given out again: %s had %d, a new object has %d", name, at, after)
		}
	}
	for _, at := range []uint64{last, last + 1000} {
		body, _, err := best.Get(t, fmt.Sprintf("%s?watch=1&timeoutSeconds=1&resourceVersion=%d", cluster.ConfigMaps, at))
		if err != nil || !strings.Contains(string(body), `"code":410`) {
			t.Errorf("a watch from %d: %v %s, want 410", at, err, body)
		}
	}

	// The other survivor is of the old cluster for ever; wiped, the others join.
	for _, n := range c.Nodes() {
		if n == best {
			continue
		}
		if n == other {
			must.OK(t, os.RemoveAll(filepath.Join(c.Dir, n.Name)))
		}
		c.Restart(t, n)
	}
	cluster.Await(t, 60*time.Second, "all have a vote again", func() string {
		voters := 0
		for _, m := range cluster.Members(t, c, "list") {
			if m.Voter {
				voters++
			}
		}
		if voters < 5 {
			return fmt.Sprint(voters, " voters")
		}
		return ""
	})
	cluster.SameStates(t, c)
}
