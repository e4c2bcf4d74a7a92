package cli

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"start", "stop", "status", "logs", "delete", "api-port", "nodes", "nonvoters"}
	for typed, want := range map[string]string{
		"strat": "start", "stpo": "stop", "stat": "start", "statsu": "status", "log": "logs", "del": "delete", "api-prot": "api-port",
		"node": "nodes", "api-adress": "", "restart": "start", "x": "", "": "", "frobnicate": "", "nonv": "nonvoters",
	} {
		if got := Nearest(typed, names); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}
