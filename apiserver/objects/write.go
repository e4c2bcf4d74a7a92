package objects

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/apiserver/types/conversion"
	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Change is what a verb decided to do with the current version of a key.
type Change struct {
	// none: the object is already as asked; nothing is written.
	None bool
	Op   proto.Op
	// Object is the decided object; nil for a delete that keeps the content.
	Object tree.Object
	// kept is Object in the version that is stored, if that is another one.
	kept tree.Object
	// value and the fields after it are obj as it will be stored.
	value  []byte
	offset uint32
	uid    string
	flags  uint32
	labels []*proto.Attribute
	fields []*proto.Attribute
	usage  *proto.Usage
	limits []*proto.Limit
}

// Written is the outcome of a write.
type Written struct {
	Version *mvcc.Version // nil for a dry run
	Object  tree.Object   // the decided object, if it was decoded
	Created bool
	Deleted bool
}

// GuaranteedUpdate changes one object, as package storage does it. decide says what is to
// happen; it runs again whenever there is a newer version, so it must not keep
// anything from the run before.
func (o *Op) GuaranteedUpdate(key string, decide func(cur *mvcc.Version) (Change, error)) (w Written, err error) {
	var (
		ch  Change
		did storage.Result
	)
	defer func() { o.reconcileClaims(did.Before, w, err) }()
	r := o.Store.updater
	r.Caller, r.Store = race{&o.decision}, o.storage()
	err = o.decideAgain(func() error {
		did, err = r.GuaranteedUpdate(o.Context, o.Resource.Table(), key, func(cur *mvcc.Version) (w *proto.Write, err error) {
			o.attempt, o.claims.proposed = attempt{current: cur}, false
			ch, err = decide(cur)
			if err != nil || ch.None || o.Options.IsDryRun() {
				return nil, err
			}
			o.claims.proposed = true
			w = o.entry(key, &ch)
			if cur == nil {
				o.guard(w)
			}
			return w, nil
		})
		return o.overLimit(err)
	})
	switch {
	case err != nil:
		return Written{}, err
	case did.Refused != 0:
		return Written{}, o.guardError(did.Refused)
	case did.After != nil:
		return Written{Version: did.After, Object: ch.Object, Created: did.Before == nil, Deleted: did.After.Deleted}, nil
	case ch.None:
		return Written{Version: did.Before, Object: ch.Object}, nil
	}
	return o.dryRun(key, ch, did.Before)
}

// dryRun is the outcome of a change that is not made: what a read would show if it had been,
// without what conversion to the stored version leaves out.
func (o *Op) dryRun(key string, ch Change, before *mvcc.Version) (Written, error) {
	if ch.kept != nil {
		own := crd.Of(o.Resource)
		read, err := o.convertTree(ch.kept, own)
		if err != nil {
			return Written{}, err
		}
		if err := own.Complete(read); err != nil {
			return Written{}, conversion.Internal(err)
		}
		ch.Object = read
	}
	shown, err := o.withRaw(o.Resource, ch.Object)
	if err != nil {
		return Written{}, err
	}
	ch.Object = shown
	if before == nil {
		// The guard of the entry would have looked at the namespace.
		if err := o.refusedHere(key); err != nil {
			return Written{}, err
		}
	} else if ch.Object != nil {
		tree.As(ch.Object["metadata"])["resourceVersion"] = before.Revision.String()
	}
	return Written{Object: ch.Object, Created: before == nil, Deleted: ch.Op == proto.Op_OP_DELETE}, nil
}

// Editable decodes the current version: old is what it is, obj a copy to change,
// with metadata of its own.
func (r *reader) Editable(cur *mvcc.Version) (old, obj, meta tree.Object, err error) {
	if old, err = r.Decode(cur); err != nil {
		return nil, nil, nil, err
	}
	obj, meta, err = tree.WithOwnMeta(old)
	return old, obj, meta, err
}

// entry is a change as a log entry, without its condition.
func (d *decision) entry(key string, ch *Change) *proto.Write {
	w := &proto.Write{
		Table: d.Resource.Table(), Key: key, Op: ch.Op,
		Value: ch.value, RevisionOffset: ch.offset,
		Uid: ch.uid, Labels: ch.labels, Fields: ch.fields, Flags: ch.flags,
		Usage: ch.usage, Limits: ch.limits, EnforceLimits: d.limited(),
		RequestId: newRequestID(),
	}
	d.decided(w)
	return w
}

func newRequestID() []byte {
	id := make([]byte, proto.RequestIDSize)
	rand.Read(id) // never fails
	return id
}

// NamespacesTable is what namespaced creates are guarded by.
const NamespacesTable = "namespaces"

// guard makes a create depend on its namespace, and that of a custom resource on its
// definition: neither can be emptied while objects come.
func (r *Request) guard(w *proto.Write) {
	if r.Resource.Namespaced {
		w.Guard = &proto.Guard{Table: NamespacesTable, Key: r.Info.ObjectNamespace}
	}
	if v := crd.Of(r.Resource); v != nil {
		w.SecondGuard = &proto.Guard{Table: crd.Table, Key: v.Definition().Metadata.Name}
	}
}

// EncodeChange encodes a decided object, once. One that is too large is stored without its
// managedFields, which may be most of it, unless it was applied: upstream does the same.
func (o *Op) EncodeChange(op proto.Op, obj tree.Object) (Change, error) {
	kept, as, err := o.forStorage(obj)
	if err != nil {
		return Change{}, err
	}
	exact, err := o.withRaw(as, kept)
	if err != nil {
		return Change{}, err
	}
	value, offset, err := codec.EncodeFor(as, exact)
	if err != nil {
		return Change{}, fmt.Errorf("encode %s: %w", o.Resource.Kind, err)
	}
	if len(value) > o.Store.MaxObject {
		if lighter := o.withoutManagedFields(obj); lighter != nil {
			return o.EncodeChange(op, lighter)
		}
		return Change{}, storage.Permanent{Err: status.EntityTooLarge(fmt.Sprintf("the object has %d bytes as it is stored, the limit is %d", len(value), o.Store.MaxObject))}
	}
	ch := Change{Op: op, Object: obj, value: value, offset: offset}
	if as != o.Resource {
		ch.kept = kept
	}
	if ch.labels, ch.fields = as.Attributes(kept); o.Resource.Expires {
		ch.fields = o.Store.withExpiry(ch.fields)
	}
	if meta, ok := obj["metadata"].(tree.Object); ok {
		ch.uid = tree.Text(meta, "uid")
		if tree.Text(meta, "deletionTimestamp") != "" {
			ch.flags |= proto.FlagTerminating
		}
	}
	if op == proto.Op_OP_PUT {
		o.charge(&ch, kept)
	}
	return ch, nil
}

// withRaw is an object with the fields as they were sent that upstream keeps so.
func (o *Op) withRaw(res *kinds.Resource, obj tree.Object) (tree.Object, error) {
	model, err := rawModelOf(res)
	if model == nil {
		return obj, err
	}
	texts := model.RawTexts(o.sent)
	if o.current != nil {
		texts = append(texts, model.RawTexts(o.current.Value())...)
	}
	return model.WithRaw(obj, texts), nil
}

// withTexts are an object and what it takes the place of with the texts of such fields, by which
// upstream compares them, and which it shows.
func (o *Op) withTexts(obj, old tree.Object) (exact, was tree.Object, err error) {
	if exact, err = o.withRaw(o.Resource, obj); err != nil || old == nil || o.current == nil {
		return exact, old, err
	}
	model, err := rawModelOf(o.Resource)
	if model == nil {
		return exact, old, err
	}
	return exact, model.WithRaw(old, model.RawTexts(o.current.Value())), nil
}

// rawModelOf is the model of a resource whose objects have fields that are kept as they are sent,
// nil if they have none.
func rawModelOf(res *kinds.Resource) (*schema.Model, error) {
	if res.Custom {
		return nil, nil
	}
	model, err := ModelOf(res)
	if err != nil || !model.HasRaw() {
		return nil, err
	}
	return model, nil
}

// withoutManagedFields is an object that does not say who owns its fields; nil if it says so
// already, or must say it.
func (o *Op) withoutManagedFields(obj tree.Object) tree.Object {
	if o.applying || tree.As(obj["metadata"])["managedFields"] == nil {
		return nil
	}
	out, meta, err := tree.WithOwnMeta(obj)
	if err != nil {
		return nil
	}
	delete(meta, "managedFields")
	return out
}

// sameBytes reports whether an encoded object is what a version holds, but for
// the revision.
func sameBytes(value []byte, offset uint32, v *mvcc.Version) bool {
	was := v.Value()
	if offset != v.RevisionOffset || int(offset) > len(value) || int(offset) > len(was) {
		return false
	}
	end := int(offset)
	for end < len(was) && was[end] >= '0' && was[end] <= '9' {
		end++
	}
	return bytes.Equal(value[:offset], was[:offset]) && bytes.Equal(value[offset:], was[end:])
}

// unchanged reports whether a change would write what is there. An object that is
// stored in another version than what is written now is changed: that is how objects
// are brought to a new version. So is one that is charged otherwise.
func (r *Request) unchanged(ch *Change, cur *mvcc.Version) bool {
	return sameBytes(ch.value, ch.offset, cur) && storedVersion(ch.fields) == versionOf(codec.FormOf(cur)) && cur.Charges(ch.usage, ch.limits)
}

func storedVersion(fields []*proto.Attribute) string {
	for _, f := range fields {
		if f.Name == kinds.FormAttribute {
			return versionOf(f.Value)
		}
	}
	return ""
}

// versionOf is the version in a form.
func versionOf(form string) string {
	version, _, _ := strings.Cut(form, "/")
	return version
}
