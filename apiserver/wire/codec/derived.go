package codec

import (
	"sync"
	"weak"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// encoding is how a version is encoded, other than it is stored.
type encoding uint8

const (
	objectProto   encoding = iota // the typed protobuf message
	metadataProto                 // PartialObjectMetadata as a protobuf message
	convertedJSON                 // the stored form with another version's fields
	tableCells                    // the cells of a row; the only one that has ages
)

// derived is a list of encodings of one version, newest first. It is immutable;
// the version's memo points to its head.
type derived struct {
	as   encoding
	kind schema.GroupVersionKind
	by   string     // Form of the resource
	rows rowPrinter // of cells: a definition may get other columns under the same schema
	rev  proto.Revision
	made cells
	next *derived
}

func (d *derived) is(as encoding, res *kinds.Resource, rev proto.Revision, rows rowPrinter) bool {
	return d.as == as && d.rev == rev && d.rows == rows && d.by == res.StorageForm && d.kind.Version == res.Version && d.kind.Kind == res.Kind && d.kind.Group == res.Group
}

// maxDerived encodings are kept per version: a few group versions in a few forms.
const maxDerived = 6

// derive returns an encoding of a version, made by f on first demand and shared
// after that. The bytes must not be changed.
func derive(as encoding, res *kinds.Resource, v *mvcc.Version, rev proto.Revision, rows rowPrinter, f func() (cells, error)) (cells, error) {
	head, _ := v.Memo().(*derived)
	n := 0
	for d := head; d != nil; d = d.next {
		if d.is(as, res, rev, rows) {
			return d.made, nil
		}
		n++
	}
	made, err := f()
	if err != nil {
		return cells{}, err
	}
	if n >= maxDerived {
		head = nil
	}
	v.SetMemo(&derived{as: as, kind: res.GVK(), by: res.StorageForm, rev: rev, rows: rows, made: made, next: head})
	memos.add(v, int64(len(made.bytes)+ageSize*len(made.ages))+derivedSize)
	return made, nil
}

// deriveBytes is derive for an encoding without ages.
func deriveBytes(as encoding, res *kinds.Resource, v *mvcc.Version, rev proto.Revision, f func() ([]byte, error)) ([]byte, error) {
	made, err := derive(as, res, v, rev, nil, func() (cells, error) {
		b, err := f()
		return cells{bytes: b}, err
	})
	return made.bytes, err
}

// derivedSize is what a derived takes beside its bytes.
const derivedSize = 176

// DefaultMemoBytes bounds what is kept beside versions.
const DefaultMemoBytes = 32 << 20

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
