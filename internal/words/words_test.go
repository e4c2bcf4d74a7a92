package words

import "testing"

// TestLists: of none, one, two and more.
func TestLists(t *testing.T) {
	for _, c := range []struct {
		list    []string
		and, or string
	}{
		{nil, "", ""}, {[]string{"a"}, "a", "a"}, {[]string{"a", "b"}, "a and b", "a or b"}, {[]string{"a", "b", "c"}, "a, b and c", "a, b or c"},
	} {
		if and, or := And(c.list), Or(c.list); and != c.and || or != c.or {
			t.Errorf("%q: %q and %q, want %q and %q", c.list, and, or, c.and, c.or)
		}
	}
}
