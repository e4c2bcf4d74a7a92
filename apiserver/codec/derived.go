package codec

import (
	"sync"
	"weak"

	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// form is a derived encoding of a version.
type form uint8

const (
	objectProto   form = iota // the typed protobuf message
	metadataProto             // PartialObjectMetadata as a protobuf message
	movedJSON                 // the stored form with another version's fields
	tableRow                  // the first of several, see rowForm; they age
)

// derived is a list of encodings of one version, newest first. It is immutable;
// the version's memo points to its head.
type derived struct {
	form  form
	kind  schema.GroupVersionKind
	by    string // Form of the resource
	rev   proto.Revision
	at    int64 // when it was made, for forms that age: in Unix seconds
	bytes []byte
	next  *derived
}

func (d *derived) is(fm form, res *kinds.Resource, rev proto.Revision) bool {
	return d.form == fm && d.rev == rev && d.by == res.Form && d.kind.Version == res.Version && d.kind.Kind == res.Kind && d.kind.Group == res.Group
}

// maxDerived encodings are kept per version: a few group versions in a few forms.
const maxDerived = 6

// derive returns an encoding of a version, made by f on first demand and shared
// after that. The bytes must not be changed.
func derive(fm form, res *kinds.Resource, v *mvcc.Version, rev proto.Revision, f func() ([]byte, error)) ([]byte, error) {
	return deriveAt(0, fm, res, v, rev, f)
}

// deriveAt is derive for a form that ages: one that was made at another time is
// replaced.
func deriveAt(at int64, fm form, res *kinds.Resource, v *mvcc.Version, rev proto.Revision, f func() ([]byte, error)) ([]byte, error) {
	head, _ := v.Memo().(*derived)
	n, aged := 0, false
	for d := head; d != nil; d = d.next {
		if d.is(fm, res, rev) {
			if d.at == at {
				return d.bytes, nil
			}
			aged = true
		}
		n++
	}
	b, err := f()
	if err != nil {
		return nil, err
	}
	switch {
	case n >= maxDerived:
		head = nil
	case aged:
		head = head.without(fm, res, rev)
	}
	v.SetMemo(&derived{form: fm, kind: res.GVK(), by: res.Form, rev: rev, at: at, bytes: b, next: head})
	memos.add(v, int64(len(b))+96)
	return b, nil
}

// without returns a copy of the list that lacks an encoding.
func (d *derived) without(fm form, res *kinds.Resource, rev proto.Revision) *derived {
	switch {
	case d == nil:
		return nil
	case d.is(fm, res, rev):
		return d.next.without(fm, res, rev)
	}
	c := *d
	c.next = d.next.without(fm, res, rev)
	return &c
}

// DefaultMemoBytes bounds what is kept beside versions.
const DefaultMemoBytes = 32 << 20

// SetMemoBytes changes the bound, for the whole process.
func SetMemoBytes(n int64) {
	memos.mu.Lock()
	defer memos.mu.Unlock()
	memos.max = n
	memos.trim()
}

// budget counts the derived encodings of the process. When there are too many
// bytes, the oldest go. It does not keep versions alive; what the garbage
// collector has taken counts until its turn comes.
type budget struct {
	mu    sync.Mutex
	max   int64
	used  int64
	queue []charge
	head  int
}

type charge struct {
	version weak.Pointer[mvcc.Version]
	size    int64
}

var memos = budget{max: DefaultMemoBytes}

func (b *budget) add(v *mvcc.Version, size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, charge{weak.Make(v), size})
	b.used += size
	b.trim()
}

// trim must be called with mu held.
func (b *budget) trim() {
	for b.used > b.max && b.head < len(b.queue) {
		c := b.queue[b.head]
		b.queue[b.head] = charge{}
		b.head++
		b.used -= c.size
		if v := c.version.Value(); v != nil {
			v.SetMemo(nil)
		}
	}
	if b.head > 1024 && b.head*2 > len(b.queue) {
		b.queue = append(make([]charge, 0, len(b.queue)-b.head), b.queue[b.head:]...)
		b.head = 0
	}
}
