package mvcc

import (
	"sort"
	"strconv"
	"sync/atomic"

	"github.com/quorate/quorate/proto"
)

// Pair is a label or a selectable field.
type Pair struct{ Name, Value string }

// Attributes are pairs sorted by name, names unique.
type Attributes []Pair

// Get returns the value of a name.
func (a Attributes) Get(name string) (string, bool) {
	i := sort.Search(len(a), func(i int) bool { return a[i].Name >= name })
	if i < len(a) && a[i].Name == name {
		return a[i].Value, true
	}
	return "", false
}

// Has and Lookup make Attributes usable as k8s.io/apimachinery labels.Labels
// (and, with Get's first result, fields.Fields) without a dependency on it.
func (a Attributes) Has(name string) bool {
	_, ok := a.Get(name)
	return ok
}

// Lookup is Get under the name that selectors use.
func (a Attributes) Lookup(name string) (string, bool) { return a.Get(name) }

func attributes(in []*proto.Attribute) Attributes {
	if len(in) == 0 {
		return nil
	}
	out := make(Attributes, len(in))
	sorted := true
	for i, a := range in {
		out[i] = Pair{a.Name, a.Value}
		sorted = sorted && (i == 0 || out[i-1].Name < a.Name)
	}
	if !sorted {
		sort.SliceStable(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	}
	return out
}

// Version is one value of one key. All fields are immutable once it is
// published.
type Version struct {
	Key string
	// Revision is the index of the entry that wrote this version.
	Revision proto.Revision
	// CreateRevision is the Revision of the first version since the key was last
	// absent. Equal to Revision: this version created the key.
	CreateRevision proto.Revision
	// Deleted marks a tombstone: Value is the last content, with the
	// delete's own revision in it.
	Deleted bool
	// Flags are proto.Flag bits.
	Flags uint32
	// Value is the encoded object, revision included.
	Value []byte
	// RevisionOffset is where the revision's digits begin in Value; zero if the
	// value has none.
	RevisionOffset uint32
	UID            string
	Labels, Fields Attributes
	RequestID      [proto.RequestIDSize]byte

	charge *charge // nil if it uses nothing and sets no limits

	prev atomic.Pointer[Version]
	memo atomic.Pointer[any]
}

// Created reports whether this version made the key exist.
func (v *Version) Created() bool { return v.Revision == v.CreateRevision && !v.Deleted }

// Prev returns the version that this one superseded, or nil if there was none
// or the floor has passed this version. For a version above the floor that is
// not Created, Prev is not nil.
func (v *Version) Prev() *Version { return v.prev.Load() }

// Memo returns what SetMemo stored last, or nil. It is a place for derived
// encodings, made on first demand and shared by all readers; it is no part of
// the replicated state.
func (v *Version) Memo() any {
	if p := v.memo.Load(); p != nil {
		return *p
	}
	return nil
}

// SetMemo stores a derived encoding. Concurrent calls are safe; the last wins.
func (v *Version) SetMemo(m any) {
	if m == nil {
		v.memo.Store(nil)
		return
	}
	v.memo.Store(&m)
}

// Size is what a version roughly costs in memory, in bytes.
func (v *Version) Size() int64 {
	n := 232 + len(v.Key) + len(v.Value) + len(v.UID) + v.charge.size()
	for _, a := range v.Labels {
		n += 32 + len(a.Name) + len(a.Value)
	}
	for _, a := range v.Fields {
		n += 32 + len(a.Name) + len(a.Value)
	}
	return int64(n)
}

// at walks the chain to the newest version <= rev, or nil.
func (v *Version) at(rev proto.Revision) *Version {
	for v != nil && v.Revision > rev {
		v = v.prev.Load()
	}
	return v
}

// insertRevision returns value with the decimal digits of rev inserted at
// offset, in a new slice of exactly the needed size. A value without a slot is
// returned as it is.
func insertRevision(value []byte, offset uint32, rev proto.Revision) []byte {
	if offset == 0 || int(offset) > len(value) {
		return value
	}
	var digits [20]byte
	d := strconv.AppendUint(digits[:0], uint64(rev), 10)
	out := make([]byte, 0, len(value)+len(d))
	out = append(out, value[:offset]...)
	out = append(out, d...)
	return append(out, value[offset:]...)
}

// replaceRevision returns value, which has the digits of old at offset, with
// those of rev in their place.
func replaceRevision(value []byte, offset uint32, old, rev proto.Revision) []byte {
	if offset == 0 {
		return value
	}
	var digits [20]byte
	end := int(offset) + len(strconv.AppendUint(digits[:0], uint64(old), 10))
	if end > len(value) {
		return value // it never had a slot
	}
	d := strconv.AppendUint(digits[:0], uint64(rev), 10)
	out := make([]byte, 0, len(value)-(end-int(offset))+len(d))
	out = append(out, value[:offset]...)
	out = append(out, d...)
	return append(out, value[end:]...)
}
