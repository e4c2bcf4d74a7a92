package test

import (
	"encoding/json"
	"testing"
)

type member struct {
	Name          string
	Voter, Leader bool
}

// members runs a member command and returns the list that it answers.
func members(t *testing.T, c *Cluster, args ...string) map[string]member {
	t.Helper()
	out := c.Admin(t, append(append([]string{"member"}, args...), "-o", "json")...)
	var list struct{ Members []member }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("member %v: %v\n%s", args, err, out)
	}
	byName := map[string]member{}
	for _, m := range list.Members {
		byName[m.Name] = m
	}
	return byName
}
