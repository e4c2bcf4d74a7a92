package controllers

import "strings"

// objectKey is where an object is: the store's table of its resource and its key
// in that table.
type objectKey struct{ Table, Key string }

// object is what the garbage collector knows of an object.
type object struct {
	objectKey
	UID string
	// Revision is the resourceVersion that says all this.
	Revision string
	Owners   []ownerReference
	Deleting bool
	// Foreground and Orphan: it has the finalizer foregroundDeletion or orphan.
	Foreground, Orphan bool
}

// awaits reports whether an object is being deleted and waits for the collector.
func (o *object) awaits() bool { return o.Deleting && (o.Foreground || o.Orphan) }

// ownerReference is one of an object's ownerReferences.
type ownerReference struct {
	APIVersion, Kind, Name, UID string
	// Blocks: the owner's deletion in the foreground waits for this object.
	Blocks bool
}

// ownerState is what has become of an owner.
type ownerState int

// What a reference may lead to.
const (
	// ownerThere: an object that stays, or that is deleted without waiting.
	ownerThere ownerState = iota
	// ownerAbsent: no object of that name, or one with another uid.
	ownerAbsent
	// ownerWaiting: an object that is deleted in the foreground.
	ownerWaiting
	// ownerUnknown: its kind is not served, now.
	ownerUnknown
	// ownerImpossible: an object of a namespace, for one that is in none.
	ownerImpossible
)

// change is one event in the history of an object.
type change struct {
	uid string
	// object is nil if it is gone, or if the collector has nothing to do with it: it
	// has no owners and awaits nothing.
	object *object
	gone   bool
}

// graph is who depends on whom. It holds the objects that have owners and those
// that wait for the collector, and nothing else: an object that is only an owner
// costs an entry in heads. Not safe for concurrent use.
type graph struct {
	nodes map[string]*node // by uid
	heads map[string]*head // by the uid of an owner
	// words are the few API versions and kinds of owners, each once.
	words map[string]string
}

// node is an object that has owners or awaits the collector.
type node struct {
	key   objectKey
	uid   string
	edges []edge // one for each owner

	deleting, foreground, orphan bool
	// circle: its own deletion in the foreground waits for itself.
	circle bool
}

// waits reports whether an object is deleted in the foreground.
func (n *node) waits() bool { return n.deleting && n.foreground }

// edge is one owner reference, in a list of all that mention the owner's uid.
type edge struct {
	owner      ownerReference
	strange    bool // the owner was not where it is looked for when the reference came
	dependent  *node
	head       *head
	prev, next *edge
}

// head is the list of the references that mention a uid.
type head struct {
	uid   string
	first *edge
}

func newGraph() *graph {
	return &graph{nodes: map[string]*node{}, heads: map[string]*head{}, words: map[string]string{}}
}

// dependents calls f for each reference to a uid.
func (g *graph) dependents(uid string, f func(*edge)) {
	h := g.heads[uid]
	if h == nil {
		return
	}
	for e := h.first; e != nil; {
		next := e.next // f may unlink e
		f(e)
		e = next
	}
}

// inCircle reports whether an object waits for itself: whether a way of blocking
// references between objects that are deleted in the foreground leads back to it.
func (g *graph) inCircle(n *node) bool {
	seen := map[*node]bool{}
	var back func(from *node) bool
	back = func(from *node) (found bool) {
		g.dependents(from.uid, func(e *edge) {
			d := e.dependent
			if found || !e.owner.Blocks || !d.waits() || seen[d] {
				return
			}
			if d == n {
				found = true
				return
			}
			if seen[d] = true; len(seen) < maxCircle {
				found = back(d)
			}
		})
		return found
	}
	return n.waits() && back(n)
}

// maxCircle bounds the objects that are looked at to find a circle.
const maxCircle = 10_000

// put adds an object or changes what is known of it. linked says that it has owners
// that it did not have before.
func (g *graph) put(o *object) (n *node, linked bool) {
	n = g.nodes[o.UID]
	if n == nil {
		n = &node{key: objectKey{Table: g.word(o.Table), Key: strings.Clone(o.Key)}, uid: strings.Clone(o.UID)}
		g.nodes[n.uid] = n
	}
	n.deleting, n.foreground, n.orphan = o.Deleting, o.Foreground, o.Orphan
	if n.sameOwners(o.Owners) {
		return n, false
	}
	g.unlink(n)
	n.edges = make([]edge, len(o.Owners))
	for i, owner := range o.Owners {
		g.link(&n.edges[i], n, owner)
	}
	return n, true
}

func (n *node) sameOwners(owners []ownerReference) bool {
	if len(n.edges) != len(owners) {
		return false
	}
	for i := range owners {
		if n.edges[i].owner != owners[i] {
			return false
		}
	}
	return true
}

func (g *graph) link(e *edge, n *node, owner ownerReference) {
	h := g.heads[owner.UID]
	if h == nil {
		h = &head{uid: strings.Clone(owner.UID)}
		g.heads[h.uid] = h
	}
	// Strings of a decoded object are parts of its bytes: none of them is kept.
	owner.UID, owner.Name = h.uid, strings.Clone(owner.Name)
	owner.APIVersion, owner.Kind = g.word(owner.APIVersion), g.word(owner.Kind)
	*e = edge{owner: owner, dependent: n, head: h, next: h.first}
	if h.first != nil {
		h.first.prev = e
	}
	h.first = e
}

// unlink takes an object out of its owners' lists.
func (g *graph) unlink(n *node) {
	for i := range n.edges {
		e := &n.edges[i]
		if e.prev != nil {
			e.prev.next = e.next
		} else {
			e.head.first = e.next
		}
		if e.next != nil {
			e.next.prev = e.prev
		}
		if e.head.first == nil {
			delete(g.heads, e.head.uid)
		}
	}
	n.edges = nil
}

// remove forgets an object. References to it stay.
func (g *graph) remove(n *node) {
	g.unlink(n)
	delete(g.nodes, n.uid)
}

// word returns a string that is kept, the same one for equal strings.
func (g *graph) word(s string) string {
	if w, ok := g.words[s]; ok {
		return w
	}
	// Clients choose API versions and kinds of owners.
	if len(g.words) >= maxWords {
		return strings.Clone(s)
	}
	s = strings.Clone(s)
	g.words[s] = s
	return s
}

const maxWords = 4096
