package node

import "testing"

// TestDBBytesInUse: the reserve of an empty state file is no part of what is in use.
func TestDBBytesInUse(t *testing.T) {
	got := open(t, alone(t)).storeStats()
	if got.DBBytesInUse == 0 || got.DBBytesInUse > got.DBBytes/2 {
		t.Errorf("%d of %d bytes are in use", got.DBBytesInUse, got.DBBytes)
	}
}
