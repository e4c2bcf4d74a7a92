package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// JoinNonvoter adds a non-voter that hears its leader through a link, so that it can be put
// behind the others. The link ends with the test process. The port after the last one that was
// planned for is its own, those of further ones follow.
func (c *Cluster) JoinNonvoter(t *testing.T, name string) (*Node, *Link) {
	t.Helper()
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(c.Admin(t, "token", "create", "-o", "json")), &made); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(c.Dir, "join-token-"+name)
	if err := os.WriteFile(token, []byte(made.Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	port := c.FreePort
	c.FreePort++
	link, err := NewLink(fmt.Sprintf("127.0.0.1:%d", port+1000))
	if err != nil {
		t.Fatal(err)
	}
	leader := c.Leader(t)
	n := c.Launch(t, name, port, "--nonvoter", "--peer-advertise-address", link.Addr,
		"--join", strings.TrimPrefix(leader.API, "https://"), "--join-token", "@"+token)
	n.AwaitReady(t)
	if m := Members(t, c, "list")[name]; m.Voter {
		t.Fatalf("%s was to be a non-voter: %+v", name, m)
	}
	return n, link
}
