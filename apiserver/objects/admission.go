package objects

import (
	"fmt"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/schema"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/storage"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
)

// Plugins are asked at two places of every write, and nowhere else: admit before an object is
// prepared and validated, admitFinal when it is what will be stored. Deletions come by
// admitDelete, what is posted and not stored by AdmitPosted, connections by AdmitConnect.
//
// Only what clients ask for comes here. The node's own controllers are not asked about:
// no rule of the cluster can stop what keeps it running.

// admission are the plugins, nil if none of them is to be asked.
func (o *Op) admission() admission.Interface {
	if !o.Client {
		return nil
	}
	return o.Store.Admission
}

// attributesOf begins a decision: it forgets what the one before has consulted.
func (o *Op) attributesOf(operation admission.Operation, obj, old tree.Object) *admission.Attributes {
	a := &o.attributes
	a.Reset()
	o.refusedByPlugin = false
	a.Operation, a.Kind, a.Resource, a.Subresource = operation, o.Resource.GVK(), o.Info.GVR(), o.Info.Subresource
	a.Namespace, a.Name, a.User, a.DryRun = o.Info.ObjectNamespace, o.Info.Name, o.User, o.Options.IsDryRun()
	a.FieldManager, a.FieldValidation = o.Options.FieldManager, o.Options.FieldValidation
	a.Object, a.Old, a.Interfaces, a.Told = obj, old, (*interfaces)(o), o
	return a
}

// Admit is admit for updates in a way of their own, which end with FinishUpdate.
func (o *Op) Admit(obj, old tree.Object) error {
	_, err := o.admit(obj, old)
	return err
}

// admit asks the mutating plugins about an object that is complete but for what is generated.
// It reports whether any of them may have changed it.
func (o *Op) admit(obj, old tree.Object) (asked bool, err error) {
	chain := o.admission()
	if chain == nil {
		return false, nil
	}
	a := o.attributesOf(admission.Create, obj, old)
	if old != nil {
		a.Operation = admission.Update
	}
	if !chain.Handles(a) {
		return false, nil
	}
	err = o.mutate(chain, a, obj, old)
	o.refusedByPlugin = err != nil
	return true, err
}

// mutate lets plugins change an object.
func (o *Op) mutate(chain admission.Interface, a *admission.Attributes, obj, old tree.Object) error {
	if o.Subresource != nil && o.Subresource.Name == "scale" {
		return o.admitScale(chain, a, obj, old)
	}
	fields := a.Meta()["managedFields"]
	if old != nil {
		err := chain.Admit(o.Context, a)
		o.keepManagedFields(obj, fields)
		return err
	}
	given := o.hideGenerated(a)
	err := chain.Admit(o.Context, a)
	o.keepManagedFields(obj, fields)
	o.restoreGenerated(obj, given)
	return err
}

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
func (o *Op) restoreGenerated(obj tree.Object, given [len(generatedFields)]any) {
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
func (o *Op) keepManagedFields(obj tree.Object, before any) {
	meta := tree.As(obj["metadata"])
	now := meta["managedFields"]
	if meta == nil || sameList(now, before) {
		return
	}
	var read metav1.ObjectMeta
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree.Object{"managedFields": now}, &read)
	if err == nil {
		err = managedfields.ValidateManagedFields(read.ManagedFields)
	}
	if err == nil {
		return
	}
	if tree.CopyField(meta, tree.Object{"managedFields": before}, "managedFields"); before == nil {
		delete(meta, "managedFields")
	}
	o.Warn([]string{fmt.Sprintf(invalidManagedFields, err)})
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
		if err := o.defaults(h, model, obj, old); err != nil {
			return err
		}
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
func (o *Op) withoutStrangeParts(obj, old tree.Object) {
	if o.Resource.Subresource("status") == nil || !o.attributes.Replaced() {
		return
	}
	if o.Subresource == nil {
		if tree.CopyField(obj, old, "status"); old == nil {
			delete(obj, "status")
		}
		return
	}
	if o.Subresource.Name != "status" {
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
	if o.Resource.Custom {
		meta, fields := tree.Clone(old["metadata"]), tree.As(obj["metadata"])
		tree.CopyField(meta, fields, "managedFields")
		tree.CopyField(meta, fields, "resourceVersion")
		obj["metadata"] = meta
	}
}

// revisionAfterAdmit refuses an update that plugins have made one of another version.
func (o *Op) revisionAfterAdmit(meta, oldMeta tree.Object) error {
	rev, err := parseObjectRevision(meta)
	switch {
	case err != nil:
		return err
	case rev == 0 && !o.Resource.UnconditionalUpdate:
		return storage.Permanent{Err: status.MustSpecifyVersion(o.Resource.GroupResource(), o.Info.Name)}
	case rev != 0 && tree.Text(meta, "resourceVersion") != tree.Text(oldMeta, "resourceVersion"):
		return storage.Permanent{Err: status.Conflict(o.Resource.GroupResource(), o.Info.Name)}
	}
	return nil
}

// admitScale asks about the Scale that is written, and takes its replicas.
func (o *Op) admitScale(chain admission.Interface, a *admission.Attributes, obj, old tree.Object) error {
	a.Kind = scaleKind.GVK()
	a.Object, a.Old = o.scaleOf(obj), o.scaleOf(old)
	if err := chain.Admit(o.Context, a); err != nil {
		return err
	}
	replicas, _ := tree.Int(tree.Lookup(a.Object, "spec.replicas"))
	return tree.Set(obj, o.Subresource.SpecReplicas, replicas)
}

// admitFinal asks the validating plugins about an object as it will be stored. It follows
// admit in the same decision.
func (o *Op) admitFinal(obj, old tree.Object) error {
	chain := o.admission()
	if chain == nil {
		return nil
	}
	a := &o.attributes
	a.Name, a.Object = o.Info.Name, obj
	if !chain.Handles(a) {
		return nil
	}
	if meta, oldMeta := tree.As(obj["metadata"]), tree.As(old["metadata"]); old != nil && tree.Text(meta, "resourceVersion") == "" {
		tree.CopyField(meta, oldMeta, "resourceVersion") // an unconditional update is one of what is there
	}
	if o.Subresource != nil && o.Subresource.Name == "scale" {
		a.Object = o.scaleOf(obj)
	}
	err := chain.Validate(o.Context, a)
	o.refusedByPlugin = err != nil
	return err
}

// admitDelete asks all plugins about the deletion of an object, as upstream does: with the
// object as it is, and none as it will be.
func (o *Op) admitDelete(options *metav1.DeleteOptions, cur *mvcc.Version) error {
	chain := o.admission()
	if chain == nil {
		return nil
	}
	a := o.attributesOf(admission.Delete, nil, nil)
	if a.DeleteOptions = options; o.Info.Verb == "deletecollection" {
		a.Name = ""
	}
	if !chain.Handles(a) {
		return nil // the ordinary case: nothing is decoded
	}
	old, err := o.Decode(cur)
	if err != nil {
		return err
	}
	a.Old = old
	if err := chain.Admit(o.Context, a); err != nil {
		return err
	}
	return chain.Validate(o.Context, a)
}

// Annotate adds a note to the operation's audit event, if it has one of that level or above.
func (o *Op) Annotate(key, value string, from auditinternal.Level) {
	if o.Event.At(from) {
		o.Event.Annotate(key, value)
	}
}
