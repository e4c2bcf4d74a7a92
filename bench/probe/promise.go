package probe

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
)

// Mode is how fresh a read's answer must be.
type Mode string

// The modes, from the cheapest on.
const (
	Any          Mode = "any"         // resourceVersion=0: what the node has
	NotOlderThan Mode = "not-older"   // resourceVersion=N, N the newest acknowledged write
	Exact        Mode = "exact"       // the state at N; lists only
	MostRecent   Mode = "most-recent" // resourceVersion unset: linearizable
)

// Title is the mode for people.
func (m Mode) Title() string {
	return map[Mode]string{Any: "Any", NotOlderThan: "Not older than N", Exact: "Exact N", MostRecent: "Most Recent"}[m]
}

// Answer is what an answer to a read lacked, and what it said of itself.
type Answer struct {
	Staleness
	Bound   time.Duration // from the header X-Quorate-Staleness
	Bounded bool          // whether there was one
	// Revision is the resourceVersion of the object, or of the list.
	Revision uint64
	List     bool
	Number   int64 // of the probe's newest write that it has; gets only
}

// Said takes the bound from an answer's header, if it knows one.
func (a *Answer) Said(header http.Header) error {
	text := header.Get("X-Quorate-Staleness")
	if text == "" || text == "unknown" {
		return nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: X-Quorate-Staleness %q", ErrStrange, text)
	}
	a.Bound, a.Bounded = time.Duration(ms)*time.Millisecond, true
	return nil
}

// Breaks says which promise of its mode an answer breaks, or "". asked is the newest
// acknowledged revision when the read was sent.
func (a *Answer) Breaks(mode Mode, asked uint64) string {
	switch {
	case mode == Any && a.Bounded && a.Age > a.Bound:
		return fmt.Sprintf("%.1f ms stale, and said at most %d ms", measure.Millis(a.Age), a.Bound.Milliseconds())
	case mode == Any:
		return ""
	case a.Versions > 0:
		return fmt.Sprintf("lacks %d acknowledged writes, the first acknowledged %.2f ms before the read was sent", a.Versions, measure.Millis(a.Age))
	case mode == NotOlderThan && a.List && a.Revision < asked:
		return fmt.Sprintf("asked for not older than %d, got %d", asked, a.Revision)
	case mode == Exact && a.Revision != asked:
		return fmt.Sprintf("asked for exactly %d, got %d", asked, a.Revision)
	}
	return ""
}

// Read is the request of a mode for probe k, or for the list of all, when revision is the newest that was acknowledged.
func (s *Space) Read(mode Mode, list bool, k int, revision uint64) client.Request {
	r := client.Request{Method: http.MethodGet, Path: s.Collection(), Header: client.Plain}
	if !list {
		r.Path += "/" + Name(k)
	}
	switch {
	case mode == Any:
		r.Query = "resourceVersion=0"
	case mode == NotOlderThan && list:
		r.Query = fmt.Sprintf("resourceVersion=%d&resourceVersionMatch=NotOlderThan", revision)
	case mode == NotOlderThan:
		r.Query = fmt.Sprintf("resourceVersion=%d", revision)
	case mode == Exact:
		r.Query = fmt.Sprintf("resourceVersion=%d&resourceVersionMatch=Exact", revision)
	}
	return r
}

// Judge looks at the answer to such a request, which was sent after the snapshot: what it lacks, what it says of
// itself, and which promise it breaks. A get that is not of probe k, or a list without all probes, is strange.
func (s *Space) Judge(mode Mode, list bool, k int, snap *Snapshot, raw []byte, header http.Header) (a Answer, broken string, err error) {
	a.List = list
	count, want := 0, 1
	if list {
		want = s.Ledger.Len()
	}
	err = Marks(raw, func(i int, number int64) {
		if list && i < want || i == k {
			count++
			a.Number = number
			a.Staleness = a.Staleness.Add(s.Ledger.Behind(snap, i, number))
		}
	})
	if err == nil && count != want {
		err = fmt.Errorf("%w: %d probes instead of %d", ErrStrange, count, want)
	}
	if err == nil {
		a.Revision, err = RevisionOf(raw)
	}
	if err == nil {
		err = a.Said(header)
	}
	if err != nil {
		return a, "", err
	}
	return a, a.Breaks(mode, snap.Revision), nil
}
