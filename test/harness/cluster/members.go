package cluster

import (
	"encoding/json"
	"testing"
)

// Member is a member as `quorate member` prints it.
type Member struct {
	Name          string
	Voter, Leader bool
}

// Members runs a member command and returns the list that it answers.
func Members(t *testing.T, c *Cluster, args ...string) map[string]Member {
	t.Helper()
	out := c.Admin(t, append(append([]string{"member"}, args...), "-o", "json")...)
	var list struct{ Members []Member }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("member %v: %v\n%s", args, err, out)
	}
	byName := map[string]Member{}
	for _, m := range list.Members {
		byName[m.Name] = m
	}
	return byName
}
