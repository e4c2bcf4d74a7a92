package schema

import (
	"slices"
	"strings"
	"testing"
)

func TestEveryModelCompiles(t *testing.T) {
	names := Names()
	if len(names) < 500 {
		t.Fatalf("%d models: the data is not complete", len(names))
	}
	for _, name := range names {
		m, err := Lookup(name)
		if err != nil {
			t.Errorf("Lookup: %v", err)
			continue
		}
		if m.root.shape == shapeAny && m.root.goType == "" {
			t.Errorf("%s: no type", name)
		}
	}
	if _, err := Lookup("io.k8s.api.apps.v1.Nothing"); err == nil {
		t.Error("an unknown model is found")
	}
}

// TestSummaries: what a node says to be below it is there, and nothing else is.
func TestSummaries(t *testing.T) {
	for _, name := range Names() {
		if _, err := Lookup(name); err != nil {
			t.Fatal(err)
		}
	}
	writes := func(f *property) bool { return f.written == writtenZero || f.written == writtenNull }
	for name, n := range nodes {
		if !slices.IsSortedFunc(n.sorted, func(a, b *property) int { return strings.Compare(a.name, b.name) }) {
			t.Errorf("%s: its fields are not sorted", name)
		}
		if got, want := n.deep, n.reaches(map[*node]bool{}, func(n *node) bool {
			return n.defaults != nil || n.rounds
		}); got != want {
			t.Errorf("%s: has defaults below: %v", name, got)
		}
		filled := func(n *node) bool {
			return n.reaches(map[*node]bool{}, func(n *node) bool { return slices.ContainsFunc(n.sorted, writes) })
		}
		if got, want := n.filled, filled(n); got != want {
			t.Errorf("%s: has parts to fill below: %v", name, got)
		}
		var fills, embedded []string
		for _, f := range n.sorted {
			if writes(f) || filled(f.node) {
				fills = append(fills, f.name)
			}
			if f.embedded && f.node.shape == shapeStruct && f.node.deep {
				embedded = append(embedded, f.name)
			}
		}
		if !slices.EqualFunc(n.fills, fills, func(f *property, name string) bool { return f.name == name }) {
			t.Errorf("%s: fills %d fields, not %v", name, len(n.fills), fills)
		}
		if !slices.EqualFunc(n.embedded, embedded, func(e embedding, name string) bool { return e.name == name }) {
			t.Errorf("%s: %v are never absent, not %v", name, n.embedded, embedded)
		}
	}
}

// reaches reports whether a node, or one below it, is what is asked for.
func (n *node) reaches(seen map[*node]bool, is func(*node) bool) bool {
	if seen[n] {
		return false
	}
	seen[n] = true
	return is(n) || n.elem != nil && n.elem.reaches(seen, is) ||
		slices.ContainsFunc(n.sorted, func(f *property) bool { return f.node.reaches(seen, is) })
}
