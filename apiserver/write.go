package apiserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/crd"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/revise"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// change is what a verb decided to do with the current version of a key.
type change struct {
	// none: the object is already as asked; nothing is written.
	none bool
	op   proto.Op
	// obj is the decided object; nil for a delete that keeps the content.
	obj tree.Object
	// value and the fields after it are obj as it will be stored.
	value  []byte
	offset uint32
	uid    string
	flags  uint32
	labels []*proto.Attribute
	fields []*proto.Attribute
}

// written is the outcome of a write.
type written struct {
	version *mvcc.Version // nil for a dry run
	obj     tree.Object   // the decided object, if it was decoded
	created bool
	deleted bool
}

// current returns the newest local version of a key of a resource, or nil.
func (s *objectStore) current(table, key string) (*mvcc.Version, error) {
	return revise.Current(s.cfg.Store, table, key)
}

// confirm makes sure that the local state includes everything that was
// acknowledged before now.
func (s *objectStore) confirm(ctx context.Context) error {
	_, err := s.cfg.Reads.Await(ctx, consistency.Plan{Mode: consistency.MostRecent})
	return err
}

// mutate changes one object, as package revise does it. decide says what is to
// happen; it runs again whenever there is a newer version, so it must not keep
// anything from the run before.
func (o *op) mutate(key string, decide func(cur *mvcc.Version) (change, error)) (w written, err error) {
	var (
		ch  change
		did revise.Result
	)
	defer func() { o.reconcileClaims(did.Before, w, err) }()
	r := revise.Reviser{Store: o.s.cfg.Store, Confirm: o.s.confirm, Retried: func() { o.s.cfg.Retried(&o.kind) }}
	did, err = r.Revise(o.ctx, o.res.Table(), key, func(cur *mvcc.Version) (w *proto.Write, err error) {
		ch, err = decide(cur)
		if err != nil || ch.none || o.q.IsDryRun() {
			return nil, err
		}
		w = o.entry(key, &ch)
		if cur == nil {
			o.guard(w)
		}
		return w, nil
	})
	switch {
	case err != nil:
		return written{}, err
	case did.Refused != 0:
		return written{}, o.guardError(did.Refused)
	case did.After != nil:
		return written{version: did.After, obj: ch.obj, created: did.Before == nil, deleted: did.After.Deleted}, nil
	case ch.none:
		return written{version: did.Before, obj: ch.obj}, nil
	}
	return o.dryRun(key, ch, did.Before)
}

// dryRun is the outcome of a change that is not made.
func (o *op) dryRun(key string, ch change, before *mvcc.Version) (written, error) {
	if before == nil {
		// The guard of the entry would have looked at the namespace.
		if err := o.refusedHere(key); err != nil {
			return written{}, err
		}
	} else if ch.obj != nil {
		tree.As(ch.obj["metadata"])["resourceVersion"] = before.Revision.String()
	}
	return written{obj: ch.obj, created: before == nil, deleted: ch.op == proto.Op_OP_DELETE}, nil
}

// editable decodes the current version: old is what it is, obj a copy to change,
// with metadata of its own.
func (o *op) editable(cur *mvcc.Version) (old, obj, meta tree.Object, err error) {
	if old, err = o.decode(cur); err != nil {
		return nil, nil, nil, err
	}
	obj, meta, err = tree.WithOwnMeta(old)
	return old, obj, meta, err
}

// entry is a change as a log entry, without its condition.
func (o *op) entry(key string, ch *change) *proto.Write {
	return &proto.Write{
		Table: o.res.Table(), Key: key, Op: ch.op,
		Value: ch.value, RevisionOffset: ch.offset,
		Uid: ch.uid, Labels: ch.labels, Fields: ch.fields, Flags: ch.flags,
		RequestId: newRequestID(),
	}
}

func newRequestID() []byte {
	id := make([]byte, proto.RequestIDSize)
	rand.Read(id) // never fails
	return id
}

// namespacesTable is what namespaced creates are guarded by.
const namespacesTable = "namespaces"

// guard makes a create depend on its namespace, and that of a custom resource on its
// definition: neither can be emptied while objects come.
func (o *op) guard(w *proto.Write) {
	if o.res.Namespaced {
		w.Guard = &proto.Guard{Table: namespacesTable, Key: o.info.ObjectNamespace}
	}
	if v := crd.Of(o.res); v != nil {
		w.SecondGuard = &proto.Guard{Table: crd.Table, Key: v.Definition().Metadata.Name}
	}
}

// store encodes a decided object, once.
func (o *op) encodeChange(op proto.Op, obj tree.Object) (change, error) {
	kept, as, err := o.forStorage(obj)
	if err != nil {
		return change{}, err
	}
	value, offset, err := codec.EncodeFor(as, kept)
	if err != nil {
		return change{}, fmt.Errorf("encode %s: %w", o.res.Kind, err)
	}
	if len(value) > o.s.cfg.MaxObject {
		return change{}, revise.Settled{Err: status.EntityTooLarge(fmt.Sprintf("the object has %d bytes as it is stored, the limit is %d", len(value), o.s.cfg.MaxObject))}
	}
	ch := change{op: op, obj: obj, value: value, offset: offset}
	if ch.labels, ch.fields = as.Attributes(kept); o.res.Expires {
		ch.fields = o.s.withExpiry(ch.fields)
	}
	if meta, ok := obj["metadata"].(tree.Object); ok {
		ch.uid = tree.Text(meta, "uid")
		if tree.Text(meta, "deletionTimestamp") != "" {
			ch.flags |= proto.FlagTerminating
		}
	}
	return ch, nil
}

// sameBytes reports whether an encoded object is what a version holds, but for
// the revision.
func sameBytes(value []byte, offset uint32, v *mvcc.Version) bool {
	if offset != v.RevisionOffset || int(offset) > len(value) || int(offset) > len(v.Value) {
		return false
	}
	end := int(offset)
	for end < len(v.Value) && v.Value[end] >= '0' && v.Value[end] <= '9' {
		end++
	}
	return bytes.Equal(value[:offset], v.Value[:offset]) && bytes.Equal(value[offset:], v.Value[end:])
}

// unchanged reports whether a change would write what is there. An object that is
// stored in another version than what is written now is changed: that is how objects
// are brought to a new version.
func unchanged(ch *change, cur *mvcc.Version) bool {
	return sameBytes(ch.value, ch.offset, cur) && storedVersion(ch.fields) == versionOf(codec.FormOf(cur))
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

// keyPath is how upstream names the place of an object in its messages.
func (o *op) keyPath() string { return "/registry/" + o.res.GroupResource().Resource + "/" + o.key() }

// parseObjectRevision reads metadata.resourceVersion of a body; zero stands for
// none.
func parseObjectRevision(meta tree.Object) (proto.Revision, error) {
	s := tree.Text(meta, "resourceVersion")
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, revise.Settled{Err: status.InvalidResourceVersion(s)}
	}
	return proto.Revision(n), nil
}

// checkIdentity checks the uid and resourceVersion that a body or a patch names
// against the current version.
func (o *op) checkIdentity(meta tree.Object, cur *mvcc.Version) error {
	if uid := tree.Text(meta, "uid"); uid != "" && uid != cur.UID {
		return status.UIDPrecondition(o.res.GroupResource(), o.info.Name, o.keyPath(), uid, cur.UID)
	}
	return o.checkRevision(meta, cur)
}

// checkRevision is checkIdentity without the uid.
func (o *op) checkRevision(meta tree.Object, cur *mvcc.Version) error {
	rev, err := parseObjectRevision(meta)
	switch {
	case err != nil:
		return err
	case rev == 0 || rev == cur.Revision:
		return nil
	case rev < cur.Revision:
		// What the client has seen is older than what this node has, and the
		// cluster can only be further.
		return revise.Settled{Err: status.Conflict(o.res.GroupResource(), o.info.Name)}
	}
	return status.Conflict(o.res.GroupResource(), o.info.Name)
}

// invalid is the 422 of validation.
func (o *op) invalid(name string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return status.Invalid(o.res.GVK().GroupKind(), name, errs)
}

func (o *op) notFound() error { return status.NotFound(o.res.GroupResource(), o.info.Name) }

// answer sends the object of a write.
func (c *call) answer(f codec.Format, code int, w written) error {
	if w.version == nil {
		return codec.WriteTree(c, c.r, f, code, c.res, w.obj)
	}
	c.read(w.version.Revision)
	v, err := c.convertOne(w.version)
	if err != nil {
		return err
	}
	return codec.WriteObject(c, c.r, f, code, c.res, v)
}

func codeOf(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}
