package readindex

import (
	"testing"
	"time"

	"github.com/quorate/quorate/proto"
)

// TestSince is when a node was last certainly current: at the start of the newest read whose index it has applied.
func TestSince(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	var f freshness
	if got := f.since(100); !got.IsZero() {
		t.Errorf("before any read: %v", got)
	}
	f.confirmed(at(1), 10)
	f.confirmed(at(3), 30)
	f.confirmed(at(2), 10) // reads overlap
	for _, x := range []struct {
		applied uint64
		want    time.Time
	}{{9, time.Time{}}, {10, at(2)}, {29, at(2)}, {30, at(3)}, {30, at(3)}} {
		if got := f.since(proto.Revision(x.applied)); !got.Equal(x.want) {
			t.Errorf("applied %d: %v, want %v", x.applied, got, x.want)
		}
	}
}

// TestConfirmationsAreBounded: a node that lags keeps the first reads, which it catches up with first, and the newest one.
func TestConfirmationsAreBounded(t *testing.T) {
	var f freshness
	for i := range 10 * maxConfirmations {
		f.confirmed(time.Unix(int64(i), 0), proto.Revision(i+1))
	}
	if len(f.pending) != maxConfirmations {
		t.Errorf("%d are kept", len(f.pending))
	}
	for applied, want := range map[uint64]int64{1: 0, 10 * maxConfirmations: 10*maxConfirmations - 1} {
		g := freshness{pending: append([]confirmation(nil), f.pending...)}
		if got := g.since(proto.Revision(applied)); got.Unix() != want {
			t.Errorf("applied %d: current at %d, want %d", applied, got.Unix(), want)
		}
	}
}
