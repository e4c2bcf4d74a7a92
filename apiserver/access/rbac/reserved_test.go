package rbac

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// TestReservedPathsAreNotGivenAway: who may read all paths, and write roles, cannot make
// one for backups and bind it.
func TestReservedPathsAreNotGivenAway(t *testing.T) {
	rules := func(lines string) (out []rbacv1.PolicyRule) {
		for line := range strings.SplitSeq(lines, ";") {
			out = append(out, parseRule(strings.Fields(line)))
		}
		return out
	}
	for _, row := range []struct {
		own, others string
		missing     bool
	}{
		{"get at *", "get at /quorate/v1/snapshot", true},
		{"get at /*", "get at /debug/pprof/*", true},
		{"get at *", "get at /quorate/*", true},
		{"get at *; get * *", "get at /metrics /quorate/v1/snapshot", true},
		{"get at *", "get at *", false},
		{"get at *", "get at /debug", false},
		{"get at /debug", "get at /debug/", true},
		{"get at *", "get at /metrics /quorate/v1/status", false},
		{"get at /quorate/v1/*", "get at /quorate/v1/snapshot", false},
		{"get at /quorate/v1/snapshot", "get at /quorate/v1/snapshot", false},
		{"* * *; * at *", "get,post at /quorate/v1/snapshot /debug/*", false},
		{"get at *; administer quorate.io clusters", "get at /quorate/v1/snapshot", false},
		{"get at *", "administer quorate.io clusters", true},
		{"delete * *", "delete quorate.io members", true},
		{"delete * *; delete quorate.io *", "delete quorate.io members", false},
		{"delete * *", "delete * *", false},
		{"delete * *", "delete apps deployments", false},
		{"delete,get quorate.io members", "delete quorate.io members", false},
		{"* * *", "delete quorate.io members", false},
		{"delete * *; administer quorate.io clusters", "delete quorate.io members", false},
	} {
		v, err := covers(context.Background(), rules(row.own), rules(row.others))
		if err != nil || (len(v.missing) > 0) != row.missing {
			t.Errorf("%s gives %s: %v is missing, %v", row.own, row.others, fmt.Sprint(describeAll(v.missing)), err)
		}
	}
}

// TestReserved: what lies below the trees is reserved, not a path that others call as the tree.
func TestReserved(t *testing.T) {
	for path, want := range map[string]bool{
		"/debug": false, "/debug/": true, "/debug/pprof": true, "/debugger": false,
		"/quorate": false, "/quorate/v1/snapshot": true, "/quorate/v1/status": false, "/metrics": false,
	} {
		if reserved(path) != want {
			t.Errorf("%s is reserved: %v", path, !want)
		}
	}
}
