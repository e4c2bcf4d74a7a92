package mvcc

import (
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/quorate/quorate/proto"
)

// Version is one value of one key. What it says does not change once it is published; how its
// value is kept may (pack.go).
type Version struct {
	// Key and UID share their bytes with the other versions of the key.
	Key, UID       string
	Labels, Fields Attributes
	// Revision is the index of the entry that wrote this version.
	Revision proto.Revision
	// CreateRevision is the Revision of the first version since the key was last
	// absent. Equal to Revision: this version created the key.
	CreateRevision proto.Revision
	RequestID      [proto.RequestIDSize]byte

	charge *charge // nil if it uses nothing and sets no limits

	prev atomic.Pointer[Version]
	memo atomic.Pointer[any]
	// raw is the first byte of the value, whose length is size; nil if it has none, or if it is
	// packed: packed is set before raw is taken away.
	raw    atomic.Pointer[byte]
	packed atomic.Pointer[packed]
	size   uint32

	// Flags are proto.Flag bits.
	Flags uint32
	// RevisionOffset is where the revision's digits begin in Value; zero if the
	// value has none.
	RevisionOffset uint32
	// Deleted marks a tombstone: Value is the last content, with the
	// delete's own revision in it.
	Deleted bool
	// run is how many older versions in a row can only be read by way of this one. It is of Pack.
	run uint8
}

// SetValue gives a version that nobody else has yet its value, which must not be written to
// after that. It returns the version.
func (v *Version) SetValue(value []byte) *Version {
	v.raw.Store(unsafe.SliceData(value))
	v.size = uint32(len(value))
	return v
}

// Value is the encoded object, revision included. The bytes are shared with others. Who needs
// them twice keeps them: a value that is packed is put together for each call.
func (v *Version) Value() []byte {
	if p := v.raw.Load(); p != nil {
		return unsafe.Slice(p, v.size)
	}
	return v.packed.Load().value(v)
}

// AppendValue appends Value to b.
func (v *Version) AppendValue(b []byte) []byte {
	if p := v.raw.Load(); p != nil {
		return append(b, unsafe.Slice(p, v.size)...)
	}
	return v.packed.Load().append(b, v)
}

// ValueSize is the length of Value.
func (v *Version) ValueSize() int { return int(v.size) }

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

// Size is what a version costs in memory at most, in bytes, its key's place in the tree and its
// own in the history included. It stays the same when the value is packed: a floor that follows
// from it is where it was.
func (v *Version) Size() int64 {
	return int64(versionSize + len(v.Key) + len(v.UID) + len(v.Labels.packed) + len(v.Fields.packed) + int(v.size) + v.charge.size())
}

// versionSize is a Version, its item, its places in tree and history, and its request id.
const versionSize = 160 + 24 + 24 + 40

// at walks the chain to the newest version <= rev, or nil.
func (v *Version) at(rev proto.Revision) *Version {
	for v != nil && v.Revision > rev {
		v = v.prev.Load()
	}
	return v
}

// identify sets key and uid. If old, the version before, has the same, they are old's; else they
// are one new string: what a decoded entry has are two, each in a piece of its own.
func (v *Version) identify(key, uid string, old *Version) {
	switch {
	case old == nil && uid == "":
		v.Key = strings.Clone(key) // as below
	case old == nil:
		both := key + uid
		v.Key, v.UID = both[:len(key)], both[len(key):]
	case old.UID == uid:
		v.Key, v.UID = old.Key, old.UID
	default:
		v.Key, v.UID = old.Key, strings.Clone(uid) // it is part of a longer text: see Parser
	}
}

// insertRevision returns value with the decimal digits of rev inserted at
// offset, in a new slice of exactly the needed size; of a value without a slot that is
// a copy, for the value is part of an entry.
func insertRevision(value []byte, offset uint32, rev proto.Revision) []byte {
	if len(value) == 0 {
		return nil
	}
	var digits [20]byte
	var d []byte
	if offset != 0 && int(offset) <= len(value) {
		d = strconv.AppendUint(digits[:0], uint64(rev), 10)
	} else {
		offset = 0
	}
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
