package mvcc

import (
	"flag"
	"testing"
)

// TestInvariants: the tests of this module check the state machine after each batch.
func TestInvariants(t *testing.T) {
	if bench := flag.Lookup("test.bench").Value.String(); Invariants() != (bench == "") {
		t.Errorf("with -bench %q: %v", bench, Invariants())
	}
}
