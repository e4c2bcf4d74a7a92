package main

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"start", "stop", "status", "logs", "delete", "api-port", "nodes", "nonvoters"}
	for typed, want := range map[string]string{
		"strat": "start", "stpo": "stop", "stat": "start", "statsu": "status", "log": "logs", "del": "delete", "api-prot": "api-port",
		"node": "nodes", "api-adress": "", "restart": "start", "x": "", "": "", "frobnicate": "", "nonv": "nonvoters",
	} {
		if got := nearest(typed, names); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}

func TestInWords(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{nil, ""}, {[]string{"a"}, "a"}, {[]string{"a", "b"}, "a and b"}, {[]string{"a", "b", "c"}, "a, b and c"},
	} {
		if got := inWords(c.words); got != c.want {
			t.Errorf("%q: %q, want %q", c.words, got, c.want)
		}
	}
}
