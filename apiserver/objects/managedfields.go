package objects

import (
	"context"
	"log/slog"

	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/fieldmanager"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// fieldManagers are the field managers of all resources and subresources, made on
// first use and kept with the resource.
type fieldManagers struct {
	// convert converts objects between versions of a resource.
	convert convertAll
}

type convertAll func(objs []tree.Object, from, to *kinds.Resource) ([]tree.Object, error)

// managerKey is a subresource among what is kept with a resource.
type managerKey struct{ sub string }

// of returns the manager of writes to a resource ("") or one of its subresources.
func (f fieldManagers) of(res *kinds.Resource, sub string, all *kinds.Registry) (*fieldmanager.Manager, error) {
	key := managerKey{sub}
	if made, ok := res.Memo().Load(key); ok {
		return made.(*fieldmanager.Manager), nil
	}
	model, err := ModelOf(res)
	if err != nil {
		return nil, err
	}
	cfg := fieldmanager.Config{
		Subresource: sub, Zero: model.Zero, Default: model.Default, Convert: convertAmong(res, all, f.convert),
	}
	for _, v := range all.VersionsOf(res) {
		version := fieldmanager.Version{GVK: v.GVK(), Model: v.Model}
		if own := crd.Of(v); own != nil {
			if version.Schema, err = own.Schema(false); err != nil {
				return nil, err
			}
		}
		cfg.Versions = append(cfg.Versions, version)
	}
	cfg.Reset = resetBy(res, sub)
	made, err := fieldmanager.New(cfg)
	if err != nil {
		return nil, err
	}
	kept, _ := res.Memo().LoadOrStore(key, made)
	return kept.(*fieldmanager.Manager), nil
}

// resetBy are the fields that writes to a resource ("") or one of its subresources cannot set.
func resetBy(res *kinds.Resource, sub string) (paths []string) {
	switch part := res.Subresource(sub); {
	case sub == "status" && res.Custom:
		return []string{"metadata", "spec"}
	case sub == "status":
		return append([]string{"spec"}, part.Resets...)
	case part != nil:
		return part.Resets
	case sub == "" && res.Subresource("status") != nil:
		paths = []string{"status"}
	}
	return append(paths, res.Resets...)
}

// convertAmong converts objects of res to its other versions and back. As upstream, it does not know those
// of another group (Events have two): who managed fields in one is forgotten.
func convertAmong(res *kinds.Resource, all *kinds.Registry, convert convertAll) fieldmanager.Convert {
	byVersion := map[apischema.GroupVersion]*kinds.Resource{}
	for _, v := range all.VersionsOf(res) {
		if v.Group == res.Group {
			byVersion[v.GroupVersion()] = v
		}
	}
	return func(objs []map[string]any, from, to apischema.GroupVersion) ([]map[string]any, error) {
		a, b := byVersion[from], byVersion[to]
		if a == nil || b == nil {
			return nil, runtime.NewNotRegisteredErrForKind("this server", to.WithKind(res.Kind))
		}
		return convert(objs, a, b)
	}
}

// FieldManager is the manager of the fields that the operation may write.
func (o *converter) FieldManager() (*fieldmanager.Manager, error) {
	all := o.Store.Kinds()
	m, err := o.Store.fields.of(o.Resource, o.Info.Subresource, all)
	if err == nil && WebhookOf(o.Resource) != nil {
		m = m.With(convertAmong(o.Resource, all, o.convertAmong))
	}
	return m, err
}

// Track keeps metadata.managedFields of an object that a write other than an apply
// has made. old is what was there before, nil for a create. obj is complete but
// for what the server adds on its own. managedFields in a body count if they can be
// read, the stored ones otherwise. Like upstream it does not fail a write: an
// object whose fields cannot be tracked has no managedFields.
func (o *converter) Track(obj, old tree.Object) error {
	meta, err := tree.Meta(obj)
	if err != nil {
		return err
	}
	m, err := o.FieldManager()
	if err == nil {
		before := old
		if before == nil {
			before = m.Nothing()
		}
		_, err = m.Update(before, obj, o.Manager)
	}
	if err != nil {
		if o.Context.Err() != nil {
			return context.Cause(o.Context) // it was not converted because nobody waits any more
		}
		delete(meta, "managedFields")
		level := slog.LevelError
		if o.Client { // which may have sent owners that nobody can read
			level = slog.LevelDebug
		}
		o.Store.Log.Log(o.Context, level, "cannot track the fields of an object", "err", err, "resource", o.Resource.GroupResource().String(), "name", o.Info.Name)
	}
	return nil
}

// ownSent is an object as the client wants it, complete and with who owns its fields, before what
// the write cannot set is taken out of it. Upstream works out all managedFields then. It makes a
// difference only where somebody may own what is taken out: where another field says the same,
// as the annotations of autoscaling/v1 do of the status, and for subresources of which
// upstream does not say what they leave as it is (kinds.Subresource.OwnsSent). old is nil for
// a create.
func (o *Op) ownSent(sent, old tree.Object) (tree.Object, error) {
	obj, meta, err := tree.WithOwnMeta(sent)
	if err != nil || o.applying {
		return obj, err
	}
	model, err := o.Model()
	if err != nil {
		return nil, err
	}
	if o.Info.Verb != "patch" {
		o.dedupOwners(meta, sameOwners)
	}
	if _, err := o.defaults(o.Strategy(), model, obj, old); err != nil {
		return nil, err
	}
	o.owned = true
	return obj, o.Track(obj, old)
}

// onlyTimesDiffer reports whether two objects are the same but for the times in
// their managedFields. An apply that changes nothing in the end, after defaulting,
// has a new time all the same, and must not become a write: appliers repeat theirs
// for ever. The resourceVersion is not looked at: one that was sent is the present one, or
// null, which takes it out.
func onlyTimesDiffer(obj, old, meta, oldMeta tree.Object) bool {
	if len(obj) != len(old) {
		return false
	}
	for name, v := range obj {
		if name != "metadata" && !tree.Equal(v, old[name]) {
			return false
		}
	}
	if !sameMeta(meta, oldMeta) || !sameMeta(oldMeta, meta) {
		return false
	}
	now, _ := meta["managedFields"].([]any)
	before, _ := oldMeta["managedFields"].([]any)
	if len(now) != len(before) {
		return false
	}
	byWho := func(e any) string {
		m, _ := e.(tree.Object)
		return tree.Text(m, "operation") + "\x00" + tree.Text(m, "manager") + "\x00" + tree.Text(m, "apiVersion") + "\x00" + tree.Text(m, "subresource")
	}
	known := map[string]any{} // a new time changes the order
	for _, e := range before {
		m, _ := e.(tree.Object)
		known[byWho(e)] = m["fieldsV1"]
	}
	for _, e := range now {
		m, _ := e.(tree.Object)
		fields, ok := known[byWho(e)]
		if !ok || !tree.Equal(m["fieldsV1"], fields) {
			return false
		}
	}
	return true
}

// sameMeta reports whether the metadata b has what a has, but for what every write changes.
func sameMeta(a, b tree.Object) bool {
	for name, v := range a {
		if name != "managedFields" && name != "resourceVersion" && !tree.Equal(v, b[name]) {
			return false
		}
	}
	return true
}
