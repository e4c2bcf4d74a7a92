package nodeauthorizer

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	corev1 "k8s.io/api/core/v1"
)

// named is what a Pod names, as of a version of it.
type named struct {
	key, uid string
	revision proto.Revision
	names    references
}

// podsOf returns the Pods of a node and what they name, as of now. The slice is shared.
func (z *Authorizer) podsOf(node string) []named {
	page, _ := z.cfg.Pods.Range(node, mvcc.Query{})
	if len(page.Versions) == 0 {
		return nil // nothing is kept of nodes that there may not be
	}
	kept := z.known.of(node)
	had := kept.pods.Load()
	if had != nil && same(*had, page.Versions) {
		return *had
	}
	now := make([]named, len(page.Versions))
	for i, v := range page.Versions {
		if p := find(had, v.Key); p != nil && p.revision == v.Revision {
			now[i] = *p
			continue
		}
		now[i] = named{key: v.Key, uid: v.UID, revision: v.Revision}
		var p corev1.Pod
		if z.decode(v, pods, &p) {
			now[i].names = references(strings.Clone(string(referencesOf(&p))))
		}
	}
	kept.pods.Store(&now)
	return now
}

// same reports whether the Pods are those, at their newest versions. Both are in the order of keys.
func same(had []named, versions []*mvcc.Version) bool {
	if len(had) != len(versions) {
		return false
	}
	for i, v := range versions {
		if had[i].revision != v.Revision { // no two objects have one
			return false
		}
	}
	return true
}

func find(had *[]named, key string) *named {
	if had == nil {
		return nil
	}
	low, high := 0, len(*had)
	for low < high {
		if mid := (low + high) / 2; (*had)[mid].key < key {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low < len(*had) && (*had)[low].key == key {
		return &(*had)[low]
	}
	return nil
}

// keptFor is for how long at least what the Pods of a node name is kept after a question about it.
const keptFor = 10 * time.Minute

// known is what the Pods of nodes name that were asked about lately. The zero value is ready.
type known struct {
	mu         sync.RWMutex
	young, old map[string]*ofNode
	since      time.Time // when young began
}

// ofNode is what is known of one node. Several goroutines may renew it at once: each stores what is
// exact at its moment, and the next one compares it with its own.
type ofNode struct{ pods atomic.Pointer[[]named] }

// peek returns what was known of a node when somebody asked last; nil: nothing.
func (k *known) peek(node string) []named {
	k.mu.RLock()
	x := k.young[node]
	k.mu.RUnlock()
	if x == nil {
		return nil
	}
	if pods := x.pods.Load(); pods != nil {
		return *pods
	}
	return nil
}

// of returns the place of a node. What nobody has asked about between two changes of generation is
// forgotten.
func (k *known) of(node string) *ofNode {
	k.mu.RLock()
	x := k.young[node]
	fresh := time.Since(k.since) < keptFor
	k.mu.RUnlock()
	if x != nil && fresh {
		return x
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := time.Now(); now.Sub(k.since) >= keptFor {
		k.young, k.old, k.since = map[string]*ofNode{}, k.young, now
	}
	if x = k.young[node]; x == nil {
		if x = k.old[node]; x == nil {
			x = &ofNode{}
		}
		k.young[node] = x
	}
	return x
}
