package apiserver

import (
	"reflect"
	"slices"
	"testing"
)

// OpenWatches is how many watches a server has.
func OpenWatches(s *Server) int { return int(s.watches.count.Load()) }

// TestServerIsSmall: a server serves, ends, and lends its objects to the node. What the node
// does with objects is no matter of a server's.
func TestServerIsSmall(t *testing.T) {
	var has []string
	for m := range reflect.TypeFor[*Server]().Methods() {
		has = append(has, m.Name)
	}
	if want := []string{"AbandonWatches", "Drain", "Objects", "ServeHTTP", "Shutdown"}; !slices.Equal(has, want) {
		t.Errorf("methods %q, want %q", has, want)
	}
}
