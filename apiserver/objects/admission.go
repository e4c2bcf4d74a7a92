package objects

import (
	"context"
	"errors"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
)

// Plugins are asked at two places of every write, and nowhere else: admit before an object is
// prepared and validated, admitFinal when it is what will be stored. Deletions come by
// admitDelete, what is posted and not stored by Post, connections by AdmitConnect.
//
// What clients ask for comes here, and what the controllers of namespaces and of garbage delete,
// which are clients upstream: so a rule that protects an object holds its namespace's end, too.
// Nothing else that the node's own controllers write does: no rule of the cluster can stop what
// keeps it running.

// admission are the plugins, nil if none of them is to be asked.
func (r *Request) admission() admission.Interface {
	if !r.Client && !r.admitted {
		return nil
	}
	return r.Store.Admission
}

// attributesOf begins a decision: it forgets what the one before has consulted.
func (d *decision) attributesOf(operation admission.Operation, obj, old tree.Object) *admission.Attributes {
	a := &d.attributes
	a.Reset()
	d.refusedByPlugin = false
	a.Operation, a.Kind, a.Resource, a.Subresource = operation, d.Resource.GVK(), d.Info.GVR(), d.Info.Subresource
	a.Namespace, a.Name, a.User, a.DryRun = d.Info.ObjectNamespace, d.Info.Name, d.User, d.Options.IsDryRun()
	a.FieldManager, a.FieldValidation = d.Options.FieldManager, d.Options.FieldValidation
	a.Object, a.Old, a.Interfaces, a.Told = obj, old, (*interfaces)(d), d
	return a
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
	hide := o.showEmpty(obj, true)
	err = o.mutate(chain, a, obj, old)
	hide()
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

// admitScale asks about the Scale that is written, and takes its replicas.
func (r *Request) admitScale(chain admission.Interface, a *admission.Attributes, obj, old tree.Object) error {
	a.Kind = scaleKind.GVK()
	a.Object, a.Old = r.scaleOf(obj), r.scaleOf(old)
	if err := chain.Admit(r.Context, a); err != nil {
		return err
	}
	replicas, _ := tree.Int(tree.Lookup(a.Object, "spec.replicas"))
	return tree.Set(obj, r.Subresource.SpecReplicas, replicas)
}

// admitFinal asks the validating plugins about an object as it will be stored. It follows
// admit in the same decision.
func (o *Op) admitFinal(obj, old tree.Object) error {
	chain := o.admission()
	if chain == nil {
		return nil
	}
	a := &o.attributes
	a.Name, a.Generated, a.Object = o.Info.Name, o.nameGenerated, obj
	if !chain.Handles(a) {
		return nil
	}
	if meta, oldMeta := tree.As(obj["metadata"]), tree.As(old["metadata"]); old != nil && tree.Text(meta, "resourceVersion") == "" {
		tree.CopyField(meta, oldMeta, "resourceVersion") // an unconditional update is one of what is there
	}
	if o.Subresource != nil && o.Subresource.Name == "scale" {
		a.Object = o.scaleOf(obj)
	}
	defer o.showEmpty(obj, true)()
	err := chain.Validate(o.Context, a)
	o.refusedByPlugin = err != nil
	return err
}

// admitDelete asks all plugins about the deletion of an object, as upstream does: with the
// object as it is, and none as it will be.
func (d *decision) admitDelete(options *metav1.DeleteOptions, cur *mvcc.Version) error {
	chain := d.admission()
	if chain == nil {
		return nil
	}
	a := d.attributesOf(admission.Delete, nil, nil)
	if a.DeleteOptions = options; d.Info.Verb == "deletecollection" {
		a.Name = ""
	}
	if !chain.Handles(a) {
		return nil // the ordinary case: nothing is decoded
	}
	old, err := d.Decode(cur)
	if err != nil {
		return err
	}
	a.Old = old
	ctx := d.Context
	if d.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d.patience, ErrSlowAdmission)
		defer cancel()
	}
	if err = chain.Admit(ctx, a); err == nil {
		err = chain.Validate(ctx, a)
	}
	if errors.Is(context.Cause(ctx), ErrSlowAdmission) {
		return ErrSlowAdmission // also where a failure of the plugin's would admit
	}
	d.refusedByPlugin = err != nil
	return err
}

// RefusedByPlugin says that admission has refused the last decision.
func (d *decision) RefusedByPlugin() bool { return d.refusedByPlugin }

// Annotate adds a note to the operation's audit event, if it has one of that level or above.
func (r *Request) Annotate(key, value string, from auditinternal.Level) {
	if r.Event.At(from) {
		r.Event.Annotate(key, value)
	}
}
