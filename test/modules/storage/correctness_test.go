//go:build correctness

package storage

import (
	"context"
	"fmt"
	"testing"

	"github.com/quorate/quorate/test/modules/storage/correctness"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// rounds is how often each node is asked: every round elects nobody and waits for nothing,
// and a follower is behind by another bit each time.
const rounds = 5

// inStorage gives the errors of upstream's storage to lists that make no sense. An API
// server refuses them before it asks its storage, in other words: so does ours.
type inStorage struct{ *adapter }

// GetList implements storage.Interface.
func (s inStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	err := s.adapter.GetList(ctx, key, opts, out)
	if _, _, _, wrong := correctness.ListReadConsistency("", s.Versioner(), opts); wrong != nil && err != nil {
		return wrong
	}
	return err
}

// TestCorrectness runs upstream's correctness suite, which writes a list of steps, reads and
// watches, and holds every answer against its model: with everything at the leader; and with
// reads and watches at a follower and at a non-voter, while writes go to all nodes in turn.
func TestCorrectness(t *testing.T) {
	c := start(t, resources(3*rounds, 0))
	nonVoter := c.open(t)
	if err := c.leader(t).store.AddNonvoter(t.Context(), nonVoter.id, nonVoter.addr, 0); err != nil {
		t.Fatal(err)
	}
	for i := range rounds {
		leader := c.leader(t)
		for _, v := range []struct {
			name             string
			readers, writers []*node
		}{
			{"leader", []*node{leader}, []*node{leader}},
			{"follower", c.followers(t)[:1], c.nodes},
			{"non-voter", []*node{nonVoter}, c.nodes},
		} {
			t.Run(fmt.Sprintf("%s/%d", v.name, i+1), func(t *testing.T) {
				a := newAdapter(t, c, v.readers, v.writers, true)
				// Upstream's store is at 1 when it is empty. Each step is one entry of the log,
				// and nobody else writes: the next revision is known.
				at := leader.store.Applied()
				if err := c.settle(t.Context(), at); err != nil {
					t.Fatal(err)
				}
				a.base = uint64(at) - 1
				correctness.RunTestCorrectness(t.Context(), t, inStorage{a}, "", func(obj runtime.Object) (string, error) {
					pod := obj.(*example.Pod)
					return "/pods/" + pod.Namespace + "/" + pod.Name, nil
				})
			})
		}
	}
}
