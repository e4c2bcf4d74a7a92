package cluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// OpenWatch is one watch of a namespace's ConfigMaps that hangs while things
// happen. It never watches again: a break shows.
type OpenWatch struct {
	Node *Node

	mu     sync.Mutex
	events []Event
	ended  error
}

// StartWatch opens a watch of a namespace's ConfigMaps after a resourceVersion, until the end
// of the test.
func StartWatch(t *testing.T, n *Node, namespace, after string) *OpenWatch {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w, err := n.Typed(t).CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: after})
	if err != nil {
		cancel()
		t.Fatalf("%s: watch: %v", n.Name, err)
	}
	l := &OpenWatch{Node: n}
	var wg sync.WaitGroup
	wg.Go(func() { l.read(w) })
	t.Cleanup(func() {
		cancel()
		w.Stop()
		wg.Wait()
	})
	return l
}

func (l *OpenWatch) read(w watch.Interface) {
	for e := range w.ResultChan() {
		event, err := ToEvent(e)
		l.mu.Lock()
		if err != nil {
			l.ended = err
		} else {
			l.events = append(l.events, event)
		}
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended == nil {
		l.ended = fmt.Errorf("the stream has ended after %d events", len(l.events))
	}
}

// Until waits for the event with a resourceVersion and returns all up to it.
func (l *OpenWatch) Until(t *testing.T, rv string) []Event {
	t.Helper()
	var events []Event
	Await(t, 20*time.Second, "the watch on "+l.Node.Name+" reaches "+rv, func() string {
		l.mu.Lock()
		defer l.mu.Unlock()
		for i, e := range l.events {
			if e.ResourceVersion == rv {
				events = l.events[:i+1]
				return ""
			}
		}
		if l.ended != nil {
			return l.ended.Error()
		}
		return fmt.Sprintf("%d events", len(l.events))
	})
	return events
}
