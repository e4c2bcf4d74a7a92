package objects

import (
	"fmt"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

// What becomes of an object that mutating plugins have seen: they do not see what the server
// generates, they may not make the request one about another object, and what they break of
// the fields' owners, or change of parts that the request is not about, does not count.

// generatedFields are those of the metadata of an object that is created which the server
// fills in: plugins do not see them, as in upstream, where they are filled in later.
var generatedFields = [...]string{"uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "name"}

// hideGenerated takes out what was generated. A name counts if it is.
func (o *Op) hideGenerated(a *admission.Attributes) (given [len(generatedFields)]any) {
	meta := a.Meta()
	for i, name := range generatedFields {
		if name == "name" && !o.nameGenerated {
			continue
		}
		if v, ok := meta[name]; ok {
			given[i] = v
			delete(meta, name)
		}
	}
	if o.nameGenerated {
		a.Name = ""
	}
	return given
}

// restoreGenerated puts back what was generated. A plugin may have given the object a name.
func (r *Request) restoreGenerated(obj tree.Object, given [len(generatedFields)]any) {
	meta := tree.As(obj["metadata"])
	if meta == nil {
		meta = tree.Object{}
		obj["metadata"] = meta
	}
	for i, name := range generatedFields {
		switch {
		case given[i] == nil && name != "name":
			delete(meta, name)
		case given[i] != nil && (name != "name" || tree.Text(meta, name) == ""):
			meta[name] = given[i]
		}
	}
}

// keepManagedFields puts managedFields back that plugins have made unreadable, and tells the
// client of it, in upstream's words.
func (r *Request) keepManagedFields(obj tree.Object, before any) {
	meta := tree.As(obj["metadata"])
	now := meta["managedFields"]
	if meta == nil || sameList(now, before) {
		return
	}
	entries, err := readManagers(now)
	if err == nil {
		err = managedfields.ValidateManagedFields(entries)
	}
	if err == nil {
		return
	}
	if tree.CopyField(meta, tree.Object{"managedFields": before}, "managedFields"); before == nil {
		delete(meta, "managedFields")
	}
	r.Warn([]string{fmt.Sprintf(invalidManagedFields, err)})
}

// readManagers reads managedFields.
func readManagers(list any) ([]metav1.ManagedFieldsEntry, error) {
	var read metav1.ObjectMeta
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree.Object{"managedFields": list}, &read)
	return read.ManagedFields, err
}

const invalidManagedFields = ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: %v"

// sameList reports whether two values are the same list, at the same place.
func sameList(a, b any) bool {
	x, y := tree.List(a), tree.List(b)
	return len(x) == len(y) && (len(x) == 0 || &x[0] == &y[0])
}

// afterAdmit makes an object that plugins may have changed whole again, and refuses what they
// may not change: to which object the request is made.
// sent is the resourceVersion that it had.
func (o *Op) afterAdmit(h *Strategy, model *schema.Model, obj, old, oldMeta tree.Object, sent string) error {
	meta, err := tree.Meta(obj)
	if err != nil {
		return err
	}
	if err := tree.MatchNamespace(meta, o.Resource.Namespaced, o.Info.ObjectNamespace); err != nil {
		return err
	}
	o.withoutStrangeParts(obj, old)
	if o.attributes.Replaced() { // defaults come last: a Pod's status has one
		if _, err := o.defaults(h, model, obj, old); err != nil {
			return err
		}
		model.Fill(obj)
	}
	if old != nil {
		tree.PrepareUpdate(meta, oldMeta)
		if now := tree.Text(meta, "resourceVersion"); now != sent {
			return o.revisionAfterAdmit(meta, oldMeta)
		}
		return nil
	}
	delete(meta, "resourceVersion") // as upstream, which refuses it in a body
	switch name := tree.Text(meta, "name"); {
	case name == "" || name == o.Info.Name:
	case o.Info.Verb != "create":
		return tree.MatchName(meta, o.Info.Name)
	default:
		o.Info.Name = name
	}
	return nil
}

// withoutStrangeParts takes out of an object what the request is not about: what plugins change
// of the status in a write of the object, and beside it in a write of the status, is dropped.
func (d *decision) withoutStrangeParts(obj, old tree.Object) {
	if d.Resource.Subresource("status") == nil || !d.attributes.Replaced() {
		return
	}
	if d.Subresource == nil {
		if old == nil {
			d.dropNewStatus(obj)
		} else {
			tree.CopyField(obj, old, "status")
		}
		return
	}
	if d.Subresource.Name != "status" {
		return
	}
	for name := range obj {
		if _, ok := old[name]; !ok && name != "status" {
			delete(obj, name)
		}
	}
	for name := range old {
		if name != "status" && name != "metadata" {
			tree.CopyField(obj, old, name)
		}
	}
	meta := tree.As(obj["metadata"])
	d.resetMetadata(obj, old)
	tree.CopyField(tree.As(obj["metadata"]), meta, "resourceVersion")
}

// revisionAfterAdmit refuses an update that plugins have made one of another version.
func (r *Request) revisionAfterAdmit(meta, oldMeta tree.Object) error {
	rev, err := parseObjectRevision(meta)
	switch {
	case err != nil:
		return err
	case rev == 0 && !r.unconditional():
		return storage.Permanent{Err: status.MustSpecifyVersion(r.Resource.GroupResource(), r.Info.Name)}
	case rev != 0 && tree.Text(meta, "resourceVersion") != tree.Text(oldMeta, "resourceVersion"):
		return storage.Permanent{Err: status.Conflict(r.Resource.GroupResource(), r.Info.Name)}
	}
	return nil
}
