package test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// liveWatch is one watch of a namespace's ConfigMaps that hangs while things
// happen. It never watches again: a break shows.
type liveWatch struct {
	node *Node

	mu     sync.Mutex
	events []Event
	ended  error
}

func startWatch(t *testing.T, n *Node, namespace, after string) *liveWatch {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w, err := n.Typed(t).CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: after})
	if err != nil {
		cancel()
		t.Fatalf("%s: watch: %v", n.Name, err)
	}
	l := &liveWatch{node: n}
	var wg sync.WaitGroup
	wg.Go(func() { l.read(w) })
	t.Cleanup(func() {
		cancel()
		w.Stop()
		wg.Wait()
	})
	return l
}

func (l *liveWatch) read(w watch.Interface) {
	for e := range w.ResultChan() {
		event, err := toEvent(e)
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

// until waits for the event with a resourceVersion and returns all up to it.
func (l *liveWatch) until(t *testing.T, rv string) []Event {
	t.Helper()
	var events []Event
	Await(t, 20*time.Second, "the watch on "+l.node.Name+" reaches "+rv, func() string {
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
