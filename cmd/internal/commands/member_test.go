package commands

import (
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/quorate/quorate/membership"
)

// Both tables name a member that came back without entries, and what to do.
func TestLostEntriesAreShown(t *testing.T) {
	m := membership.MemberInfo{ID: "aaaa", Name: "n2", LostEntries: "it had acknowledged entries up to 64"}
	var list, status strings.Builder
	w := tabwriter.NewWriter(&list, 0, 0, 1, ' ', 0)
	memberTable(w, membership.MemberList{Members: []membership.MemberInfo{m}})
	w.Flush()
	w = tabwriter.NewWriter(&status, 0, 0, 1, ' ', 0)
	new(statusOutput).table(w, membership.ClusterStatus{Members: []membership.MemberStatus{{MemberInfo: m, Error: "it does not answer"}}})
	w.Flush()
	for _, text := range []string{list.String(), status.String()} {
		for _, want := range []string{"n2 HAS LOST ENTRIES", m.LostEntries, "Keep its data directory", "quorate member remove aaaa"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is missing in\n%s", want, text)
			}
		}
	}
}
