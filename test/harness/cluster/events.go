package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Event is what a watch has shown of one change.
type Event struct {
	Type            string
	Name            string
	ResourceVersion string
}

// Revision is a resourceVersion as a number; "" is 0.
func Revision(t testing.TB, rv string) uint64 {
	t.Helper()
	if rv == "" {
		return 0
	}
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		t.Fatalf("resourceVersion %q: %v", rv, err)
	}
	return n
}

// ParseKubectlWatch reads the output of
// `kubectl get -w --output-watch-events -o json`. An event that is not yet
// printed whole is left out.
func ParseKubectlWatch(t testing.TB, out string) []Event {
	t.Helper()
	var events []Event
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var e struct {
			Type   string
			Object struct {
				Kind     string
				Metadata struct{ Name, ResourceVersion string }
				Items    []any
			}
		}
		switch err := d.Decode(&e); {
		case err == io.EOF, err == io.ErrUnexpectedEOF:
			return events
		case err != nil:
			t.Fatalf("the output of kubectl get -w: %v\n%s", err, out[max(0, len(out)-1000):])
		}
		events = append(events, Event{e.Type, e.Object.Metadata.Name, e.Object.Metadata.ResourceVersion})
	}
}

// InOrder fails the test unless the resourceVersions rise from event to event:
// none twice, none late.
func InOrder(t testing.TB, who string, events []Event) {
	t.Helper()
	for i := 1; i < len(events); i++ {
		if Revision(t, events[i].ResourceVersion) <= Revision(t, events[i-1].ResourceVersion) {
			t.Errorf("%s: event %+v came after %+v", who, events[i], events[i-1])
		}
	}
}

// SameEvents fails the test unless both saw the same, and shows the first
// difference.
func SameEvents(t testing.TB, who string, got []Event, as string, want []Event) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	for i := range max(len(got), len(want)) {
		var g, w any = "nothing", "nothing"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("%s saw %d events, %s %d; the first difference, at %d: %+v, want %+v", who, len(got), as, len(want), i, g, w)
			return
		}
	}
}

// Watch reads the events of the ConfigMaps of a namespace on this node, after
// one resourceVersion and up to the end of another, and fails the test when the
// stream ends, breaks or does not get there in time.
func (n *Node) Watch(t testing.TB, namespace, after, until string) []Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	w, err := n.Typed(t).CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: after, AllowWatchBookmarks: true})
	if err != nil {
		t.Fatalf("%s: watch from %s: %v", n.Name, after, err)
	}
	defer w.Stop()
	var events []Event
	for e := range w.ResultChan() {
		event, err := ToEvent(e)
		if err != nil {
			t.Fatalf("%s: watch from %s: %v", n.Name, after, err)
		}
		if event.Type != string(watch.Bookmark) {
			events = append(events, event)
		}
		if Revision(t, event.ResourceVersion) >= Revision(t, until) {
			return events
		}
	}
	t.Fatalf("%s: a watch from %s ended before %s, after %d events", n.Name, after, until, len(events))
	return nil
}

// ToEvent reads an event of client-go. An event of type ERROR is an error.
func ToEvent(e watch.Event) (Event, error) {
	if e.Type == watch.Error {
		return Event{}, apierrors.FromObject(e.Object)
	}
	m, err := meta.Accessor(e.Object)
	if err != nil {
		return Event{}, fmt.Errorf("event %s: %w", e.Type, err)
	}
	return Event{string(e.Type), m.GetName(), m.GetResourceVersion()}, nil
}
