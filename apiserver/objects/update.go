package objects

import (
	"errors"
	"maps"
	"time"

	"github.com/quorate/quorate/apiserver/objects/patch"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// MatchPath checks that a body is the object that the path names.
func (r *Request) MatchPath(obj tree.Object) error {
	meta, err := tree.Meta(obj)
	if err != nil {
		return err
	}
	if err := tree.MatchNamespace(meta, r.Resource.Namespaced, r.Info.ObjectNamespace); err != nil {
		return err
	}
	return tree.MatchName(meta, r.Info.Name)
}

// Put replaces what the target shows by a body, which fits its model.
type Put struct{ Sent tree.Object }

// insert is create-on-update, for the kinds that have it.
func (p Put) insert(o *Op) (Change, error) {
	obj, meta, err := tree.WithOwnMeta(p.Sent)
	if err != nil {
		return Change{}, err
	}
	switch rev, err := parseObjectRevision(meta); {
	case err != nil:
		return Change{}, err
	case o.Resource.CreateOnUpdate && rev == 0 && tree.Text(meta, "uid") != "":
		return Change{}, status.UIDPrecondition(o.Resource.GroupResource(), o.Info.Name, o.keyPath(), tree.Text(meta, "uid"), "")
	case o.Resource.CreateOnUpdate && rev == 0:
		return o.decideInsert(obj, meta)
	}
	return Change{}, o.NotFound()
}

func (p Put) wanted(o *Op, on Target, cur *mvcc.Version) (sent, old tree.Object, err error) {
	if err := on.match(o, p.Sent, cur); err != nil {
		return nil, nil, err
	}
	old, err = o.Decode(cur)
	return p.Sent, old, err
}

// Whole is the object itself, but for a status that is a subresource.
var Whole Target = whole{}

type whole struct{ itself }

func (whole) inserts() bool { return true }

func (whole) match(o *Op, sent tree.Object, cur *mvcc.Version) error {
	return o.checkSent(sent, cur)
}

func (whole) take(o *Op, sent, old tree.Object, _ *mvcc.Version) (tree.Object, error) {
	if o.Resource.Conversion != "" {
		obj, err := o.ownSent(sent, old)
		if err != nil {
			return nil, err
		}
		return o.inStoredForm(obj, nil, old, keepStatus)
	}
	obj, _, err := tree.WithOwnMeta(sent)
	if err == nil && o.Resource.Subresource("status") != nil {
		tree.CopyField(obj, old, "status")
	}
	return obj, err
}

func keepStatus(obj, _, old tree.Object) error {
	tree.CopyField(obj, old, "status")
	return nil
}

// itself is what targets have in common that show the object as it is.
type itself struct{}

func (itself) Kind(o *Op) *kinds.Resource { return o.Resource }

func (itself) Shown(_ *Op, obj tree.Object) tree.Object { return obj }

func (itself) configuration(o *Op, body tree.Object, model *schema.Model) (tree.Object, error) {
	if o.Resource.Custom {
		body = withoutBadTimes(body)
	}
	// The library takes managers that it cannot read for none.
	list := tree.List(tree.Field(body, "metadata", "managedFields"))
	if len(list) > 0 && (&unstructured.Unstructured{Object: body}).GroupVersionKind() == o.Resource.GVK() {
		if _, err := readManagers(list); err != nil {
			return nil, status.BadRequest("metadata.managedFields must be nil")
		}
	}
	c, err := canonical(body, model)
	if err != nil {
		return nil, status.CannotBeHandled(o.Resource.GVK(), o.Resource.Kind, err)
	}
	return c, nil
}

// withoutBadTimes is a configuration without times of the server's own that are none: upstream looks
// at them when it has merged, and at those of a custom resource not at all.
func withoutBadTimes(body tree.Object) tree.Object {
	meta := tree.As(body["metadata"])
	for _, name := range [...]string{"creationTimestamp", "deletionTimestamp"} {
		switch v := meta[name].(type) {
		case nil, tree.Object, []any: // which the merge refuses
			continue
		case string:
			if _, err := time.Parse(time.RFC3339, v); err == nil {
				continue
			}
		}
		meta = tree.Clone(meta)
		meta[name] = nil // it owns the field
		body = maps.Clone(body)
		body["metadata"] = meta
	}
	return body
}

func (itself) patched(o *Op, p *patch.Patch, old tree.Object, cur *mvcc.Version) (tree.Object, error) {
	model, err := o.Model()
	if err != nil {
		return nil, err
	}
	from := old
	if o.notStored() {
		// What the patch leaves as it is would be shared, and old would get the defaults of this version, too.
		from = runtime.DeepCopyJSON(old)
	}
	obj, err := p.Apply(from, model.PatchMeta())
	if err != nil {
		return nil, err
	}
	o.keepTexts(p, from, model, cur)
	if err := saysText(p, obj); err != nil {
		return nil, err
	}
	if o.Resource.Custom {
		o.Other = nil // which the patch may have made of another version
		gv, err := apischema.ParseGroupVersion(tree.Text(obj, "apiVersion"))
		if err != nil {
			return nil, invalidPatch(string(p.Raw), err.Error())
		}
		if v, there := obj["apiVersion"]; there && v == nil {
			return nil, invalidPatch(string(p.Raw), ".apiVersion accessor error: <nil> is of the type <nil>, expected string")
		}
		err = saysKind(obj, o.Resource)
		if gv.Group != o.Resource.Group && tree.Text(obj, "apiVersion") != "" && !errors.Is(err, errNoKind) {
			err = errOtherKind // of whichever group
		}
		switch {
		case errors.Is(err, errNoKind):
			return nil, invalidPatch(string(p.Raw), missingKind(p.Raw).Error())
		case errors.Is(err, errOtherKind) && o.Info.Subresource == "status":
			obj["kind"], obj["apiVersion"] = o.Resource.Kind, o.Resource.GroupVersion().String()
		case errors.Is(err, errOtherKind):
			return o.patchedOther(p, obj, cur)
		case err != nil:
			return nil, err
		}
	}
	if err := o.saysVersion(p, obj, o.Resource.GVK()); err != nil {
		return nil, err
	}
	if p.Type == types.StrategicMergePatchType {
		// What it says of itself is not looked at, as upstream, but that it is text.
		if codec.CheckType(obj) == nil {
			obj["kind"], obj["apiVersion"] = o.Resource.Kind, o.Resource.GroupVersion().String()
		}
	} else if _, err := CheckKind(obj, o.Resource.GVK()); err != nil {
		return nil, invalidPatch(string(p.Raw), err.Error())
	}
	if err := o.fitPatched(p, obj, model); err != nil {
		return nil, err
	}
	// Another uid is an attempt to change it, which validation refuses; a PUT of an
	// object with another uid is about another object.
	meta, err := tree.Meta(obj)
	if err != nil {
		return nil, err
	}
	o.dedupOwners(meta, sameOwnersAfterMutation)
	return obj, o.checkRevision(meta, cur)
}

// patchedOther is what a patch has made of a custom resource if it says another kind now.
func (r *Request) patchedOther(p *patch.Patch, obj tree.Object, cur *mvcc.Version) (tree.Object, error) {
	if err := r.takeOther(obj); err != nil {
		return nil, invalidPatch(string(p.Raw), err.Error())
	}
	if err := r.MatchPath(obj); err != nil {
		return nil, err
	}
	return obj, r.checkRevision(tree.As(obj["metadata"]), cur)
}

// decideInsert creates an object that was put or applied.
func (o *Op) decideInsert(obj, meta tree.Object) (Change, error) {
	if err := o.authorizeAlso("create"); err != nil {
		return Change{}, err
	}
	delete(meta, "resourceVersion") // "0" is no version
	tree.PrepareCreate(meta, o.Resource.BeginsGeneration(), o.Store.Now())
	obj, err := o.newObject(obj)
	if err != nil {
		return Change{}, err
	}
	if err := o.complete(obj, nil, tree.As(obj["metadata"]), nil); err != nil {
		return Change{}, err
	}
	if err := o.admitFinal(obj, nil); err != nil {
		return Change{}, err
	}
	return o.EncodeChange(proto.Op_OP_PUT, obj)
}

// Replace decides on a new content for the current version. obj fits the model
// and has metadata of its own; old is cur decoded. Identical bytes are no write;
// the update that removes the last finalizer of a deleting object deletes it.
func (o *Op) Replace(cur *mvcc.Version, obj, old tree.Object) (Change, error) {
	meta, err := tree.Meta(obj)
	if err != nil {
		return Change{}, err
	}
	oldMeta, err := tree.Meta(old)
	if err != nil {
		return Change{}, err
	}
	tree.PrepareUpdate(meta, oldMeta)
	if err := o.complete(obj, old, meta, oldMeta); err != nil {
		return Change{}, err
	}
	return o.FinishUpdate(cur, obj, old, tree.As(obj["metadata"]), oldMeta)
}

// FinishUpdate is the second half of Replace, for an object that is complete.
func (o *Op) FinishUpdate(cur *mvcc.Version, obj, old, meta, oldMeta tree.Object) (Change, error) {
	if o.Resource.HasGeneration {
		o.countGeneration(obj, old, meta, oldMeta)
	}
	if err := o.admitFinal(obj, old); err != nil {
		return Change{}, err
	}
	op := proto.Op_OP_PUT
	if o.Released(obj, meta, oldMeta) {
		op = proto.Op_OP_DELETE
	}
	if o.applying && onlyTimesDiffer(obj, old, meta, oldMeta) {
		tree.CopyField(meta, oldMeta, "managedFields")
	}
	ch, err := o.EncodeChange(op, obj)
	if err != nil {
		return Change{}, err
	}
	if same := o.Strategy().SameRule; op == proto.Op_OP_PUT && same != nil && same(obj, old) {
		ch.flags |= proto.FlagSameRule
	}
	if ch.None = op == proto.Op_OP_PUT && o.unchanged(&ch, cur); ch.None {
		ch.Object = old // with its resourceVersion
	}
	return ch, nil
}

// Released reports whether nothing holds a deleting object any more.
func (r *Request) Released(obj, meta, oldMeta tree.Object) bool {
	if tree.Text(oldMeta, "deletionTimestamp") == "" || tree.HasFinalizers(meta) {
		return false
	}
	if grace, _ := tree.Int(oldMeta["deletionGracePeriodSeconds"]); grace > 0 {
		return false
	}
	h := r.Strategy()
	return h.Holds == nil || !h.Holds(obj)
}
