package commands

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/membership"
)

// TestStatusTable: what fits into 80 columns, and what -o wide has beside it.
func TestStatusTable(t *testing.T) {
	member := func(name, role, failed string) membership.MemberStatus {
		return membership.MemberStatus{
			MemberInfo: membership.MemberInfo{ID: "c41e0123456789abcdef0123456789ab", Name: name, Voter: true, APIAddress: "https://192.0.2.1:6443"},
			Role:       role, Term: 7, Commit: 1234567, Applied: 1234567, LastContactMS: 120, DBBytes: 999 << 20, Version: "v1.2.3", Error: failed,
		}
	}
	st := membership.ClusterStatus{ClusterID: "c", Voters: 3, LiveVoters: 2, Quorum: true, Members: []membership.MemberStatus{
		member("node-a", "leader", ""), member("node-b", "", "dead"), member("node-c", "follower", ""),
	}}
	table := func(o statusOutput) []string {
		var b bytes.Buffer
		w := tabwriter.NewWriter(&b, 0, 8, 3, ' ', 0)
		o.table(w, st)
		must.OK(t, w.Flush())
		return strings.Split(b.String(), "\n")
	}
	for _, line := range table(statusOutput{}) {
		if len(line) > 80 {
			t.Errorf("%d columns: %q", len(line), line)
		}
	}
	if lines := table(statusOutput{}); strings.Index(lines[0], "DB SIZE") != strings.Index(lines[3], "999.0 MiB") {
		t.Errorf("the columns are not aligned:\n%s", strings.Join(lines, "\n"))
	}
	for i, line := range table(statusOutput{wide: true})[1:4] {
		if !strings.HasSuffix(line, "https://192.0.2.1:6443   c41e0123456789abcdef0123456789ab") || strings.Contains(line, "v1.2.3") != (i != 1) {
			t.Errorf("wide: %q", line)
		}
	}
	const alarm = "\x1b[1;31mNO QUORUM\x1b[0m"
	st.Quorum = false
	for _, color := range []bool{false, true} {
		if got := strings.Join(table(statusOutput{color: color}), "\n"); strings.Contains(got, alarm) != color || !strings.Contains(got, "NO QUORUM") {
			t.Errorf("colour %v: %q", color, got)
		}
	}
}

// TestStatusWatch shows the status again and again, until it is ended; then that is no error.
func TestStatusWatch(t *testing.T) {
	f := newFakeAPI(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &countedWrites{after: 2, then: cancel}
	c := newCommand()
	c.SetArgs([]string{"status", "--watch", "--kubeconfig", f.kubeconfig("admin")})
	c.SetOut(out)
	must.OK(t, c.ExecuteContext(ctx))
	tables := slices.Collect(strings.Lines(out.String()))
	if n := strings.Count(out.String(), "NAME   ROLE"); n != 2 || len(tables)%2 != 0 {
		t.Errorf("%d tables:\n%s", n, out)
	}
}

// countedWrites calls a function after some writes.
type countedWrites struct {
	bytes.Buffer
	after int
	then  func()
}

func (w *countedWrites) Write(b []byte) (int, error) {
	if w.after--; w.after == 0 {
		w.then()
	}
	return w.Buffer.Write(b)
}
