package apiserver

import (
	"fmt"
	"strings"

	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/revise"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *call) update() error {
	f, sent, err := c.readWrite("UpdateOptions")
	if err != nil {
		return err
	}
	if err := c.matchPath(sent); err != nil {
		return err
	}
	w, err := c.mutate(c.key(), func(cur *mvcc.Version) (change, error) {
		return c.decideUpdate(sent, cur)
	})
	if err != nil {
		return err
	}
	return c.answer(f, codeOf(w.created), w)
}

// matchPath checks that a body is the object that the path names.
func (o *op) matchPath(obj tree.Object) error {
	meta, err := tree.Meta(obj)
	if err != nil {
		return err
	}
	if err := tree.MatchNamespace(meta, o.res.Namespaced, o.info.ObjectNamespace); err != nil {
		return err
	}
	return tree.MatchName(meta, o.info.Name)
}

func (o *op) decideUpdate(sent tree.Object, cur *mvcc.Version) (change, error) {
	obj, meta, err := tree.WithOwnMeta(sent)
	if err != nil {
		return change{}, err
	}
	rev, err := parseObjectRevision(meta)
	switch {
	case err != nil:
		return change{}, err
	case cur == nil && o.res.CreateOnUpdate && rev == 0:
		return o.decideInsert(obj, meta)
	case cur == nil:
		return change{}, o.notFound()
	case rev == 0 && !o.res.UnconditionalUpdate:
		return change{}, revise.Settled{Err: status.MustSpecifyVersion(o.res.GroupResource(), o.info.Name)}
	}
	if err := o.checkIdentity(meta, cur); err != nil {
		return change{}, err
	}
	old, err := o.decode(cur)
	if err != nil {
		return change{}, err
	}
	if o.res.Subresource("status") != nil {
		tree.CopyField(obj, old, "status")
	}
	return o.replace(cur, obj, old)
}

// decideInsert is create-on-update.
func (o *op) decideInsert(obj, meta tree.Object) (change, error) {
	if err := o.authorizeAlso("create"); err != nil {
		return change{}, err
	}
	delete(meta, "resourceVersion") // "0" is no version
	if err := tree.PrepareCreate(meta, o.res.HasGeneration, o.s.cfg.Now()); err != nil {
		return change{}, err
	}
	if o.res.Subresource("status") != nil {
		delete(obj, "status")
	}
	if err := o.complete(obj, nil, tree.ValidateMeta(meta, o.res.NameRule)); err != nil {
		return change{}, err
	}
	return o.encodeChange(proto.Op_OP_PUT, obj)
}

// alsoAllowed asks for a second permission that a request turns out to need.
func (o *op) authorizeAlso(verb string) error {
	a := o.attributes()
	a.Verb = verb
	d, reason, err := o.s.cfg.Authorizer.Authorize(o.ctx, a)
	if d == auth.Allow {
		return nil
	}
	if err != nil && reason == "" {
		o.s.cfg.Log.Error("authorization is incomplete", "err", err, "user", o.user.Name)
	}
	return revise.Settled{Err: auth.Forbidden(a, reason)}
}

// replace decides on a new content for the current version. obj fits the model
// and has metadata of its own; old is cur decoded. Identical bytes are no write;
// the update that removes the last finalizer of a deleting object deletes it.
func (o *op) replace(cur *mvcc.Version, obj, old tree.Object) (change, error) {
	meta, err := tree.Meta(obj)
	if err != nil {
		return change{}, err
	}
	oldMeta, err := tree.Meta(old)
	if err != nil {
		return change{}, err
	}
	tree.PrepareUpdate(meta, oldMeta)
	errs := append(tree.ValidateMeta(meta, o.res.NameRule), tree.ValidateMetaUpdate(meta, oldMeta)...)
	if err := o.complete(obj, old, errs); err != nil {
		return change{}, err
	}
	return o.finishUpdate(cur, obj, old, meta, oldMeta)
}

// settle is the second half of replace, for an object that is complete.
func (o *op) finishUpdate(cur *mvcc.Version, obj, old, meta, oldMeta tree.Object) (change, error) {
	if o.res.HasGeneration {
		countGeneration(o.res, obj, old, meta)
	}
	op := proto.Op_OP_PUT
	if o.released(obj, meta, oldMeta) {
		op = proto.Op_OP_DELETE
	}
	if o.applying && onlyTimesDiffer(obj, old, meta, oldMeta) {
		tree.CopyField(meta, oldMeta, "managedFields")
	}
	ch, err := o.encodeChange(op, obj)
	if err != nil {
		return change{}, err
	}
	ch.none = op == proto.Op_OP_PUT && unchanged(&ch, cur)
	return ch, nil
}

// released reports whether nothing holds a deleting object any more.
func (o *op) released(obj, meta, oldMeta tree.Object) bool {
	if tree.Text(oldMeta, "deletionTimestamp") == "" || tree.HasFinalizers(meta) {
		return false
	}
	if grace, _ := tree.Int(oldMeta["deletionGracePeriodSeconds"]); grace > 0 {
		return false
	}
	h := o.strategy()
	return h.holds == nil || !h.holds(obj)
}

// immutableErrors compares the fields that a kind declares immutable.
func immutableErrors(res *kinds.Resource, obj, old tree.Object) (errs field.ErrorList) {
	for _, path := range res.ImmutableFields {
		was, now := tree.Lookup(old, path), tree.Lookup(obj, path)
		if !tree.Equal(was, now) {
			errs = append(errs, field.Invalid(dottedPath(path), now, apivalidation.FieldImmutableErrorMsg))
		}
	}
	return append(errs, frozenErrors(res, obj, old)...)
}

// frozenErrors compares the fields of an object that was declared immutable as a
// whole.
func frozenErrors(res *kinds.Resource, obj, old tree.Object) (errs field.ErrorList) {
	if res.FrozenBy == "" || tree.Lookup(old, res.FrozenBy) != true {
		return nil
	}
	why := fmt.Sprintf("field is immutable when `%s` is set", res.FrozenBy)
	if tree.Lookup(obj, res.FrozenBy) != true {
		errs = append(errs, field.Forbidden(dottedPath(res.FrozenBy), why))
	}
	for _, path := range res.FrozenFields {
		if !tree.Equal(tree.Lookup(old, path), tree.Lookup(obj, path)) {
			errs = append(errs, field.Forbidden(dottedPath(path), why))
		}
	}
	return errs
}

func dottedPath(path string) *field.Path {
	parts := strings.Split(strings.TrimPrefix(path, "."), ".")
	return field.NewPath(parts[0], parts[1:]...)
}

// countGeneration raises metadata.generation if anything outside metadata and
// status has changed.
func countGeneration(res *kinds.Resource, obj, old tree.Object, meta tree.Object) {
	// A status that is no subresource of a custom resource is a field like others.
	plain := res.Custom && res.Subresource("status") == nil
	if specEqual(obj, old) && (!plain || tree.Equal(obj["status"], old["status"])) {
		return
	}
	was, _ := tree.Int(meta["generation"])
	meta["generation"] = was + 1
}

func specEqual(obj, old tree.Object) bool {
	return halfEqual(obj, old) && halfEqual(old, obj)
}

func halfEqual(a, b tree.Object) bool {
	for k, v := range a {
		switch k {
		case "metadata", "status", "kind", "apiVersion":
			continue
		}
		if w, ok := b[k]; !ok || !tree.Equal(v, w) {
			return false
		}
	}
	return true
}
