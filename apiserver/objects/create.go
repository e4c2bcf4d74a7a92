package objects

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/proto"
	storeerrors "github.com/quorate/quorate/raftstore/errors"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// generateAttempts is how many names are tried for a generateName.
const generateAttempts = 8

// CreateSent creates the object that a client has sent as a body of some type. Errors are for the client.
func (o *Op) CreateSent(contentType string, body []byte) (w Written, err error) {
	err = o.decideAgain(func() error {
		obj, err := o.DecodeBody(contentType, body, o.Resource)
		if err == nil {
			w, err = o.Create(obj)
		}
		return err
	})
	return w, err
}

// Create completes, validates and stores an object of the node's own, which fits the
// model. With generateName it tries several names. Errors are for who wants the object.
func (o *Op) Create(obj tree.Object) (Written, error) {
	meta, err := tree.Meta(obj)
	if err != nil {
		return Written{}, err
	}
	if err := tree.MatchNamespace(meta, o.Resource.Namespaced, o.Info.ObjectNamespace); err != nil {
		return Written{}, err
	}
	// It is storage that refuses a version upstream, behind admission and validation, and where no dry
	// run comes by: clients try copies of objects that they have read.
	o.attempt = attempt{sentVersion: tree.HasVersion(meta) && !o.Options.IsDryRun()}
	tree.PrepareCreate(meta, o.Resource.BeginsGeneration(), o.Store.Now())
	if obj, err = o.newObject(obj); err != nil {
		return Written{}, err
	}
	meta = tree.As(obj["metadata"])
	o.mayBeGenerated = tree.Text(meta, "generateName") != ""
	if tree.Text(meta, "name") == "" && o.mayBeGenerated {
		return o.createGenerated(obj)
	}
	o.Info.Name = tree.Text(meta, "name")
	return o.createNamed(obj, meta)
}

// newObject is what becomes of an object that is made by a request about the object: without a
// status, unless its kind comes with one.
func (o *Op) newObject(sent tree.Object) (tree.Object, error) {
	if o.Resource.Conversion == "" {
		o.dropNewStatus(sent)
		return sent, nil
	}
	obj, err := o.ownSent(sent, nil)
	if err != nil {
		return nil, err
	}
	return o.inStoredForm(obj, nil, nil, func(obj, _, _ tree.Object) error {
		o.dropNewStatus(obj)
		return nil
	})
}

// dropNewStatus takes the status out of a new object, unless its kind comes with one.
func (r *Request) dropNewStatus(obj tree.Object) {
	if r.Resource.Subresource("status") != nil && !r.Resource.StatusOnCreate {
		delete(obj, "status")
	}
}

// complete makes an object what it will be, and validates all of it: what it leaves out is
// filled in, it is admitted, prepared, checked, and given what only one object may have.
// meta and oldMeta are the metadata of obj and old, which are nil for a create. Everything
// that is wrong is refused at once.
func (o *Op) complete(obj, old, meta, oldMeta tree.Object) error {
	model, err := o.Model()
	if err != nil {
		return err
	}
	h := o.Strategy()
	if o.Info.Verb != "patch" {
		o.dedupOwners(meta, sameOwners)
	}
	if err := o.fillIn(h, model, obj, old); err != nil {
		return err
	}
	if o.admission() != nil {
		sent := tree.Text(meta, "resourceVersion")
		asked, err := o.admit(obj, old)
		if err != nil {
			return err
		}
		if asked {
			if err := o.afterAdmit(h, model, obj, old, oldMeta, sent); err != nil {
				return err
			}
		}
	}
	o.dedupOwners(tree.As(obj["metadata"]), sameOwnersAfterMutation)
	if err := o.prepare(h, obj, old); err != nil {
		return err
	}
	told := o.Advice()
	errs, err := o.validate(h, obj, old, told)
	if err != nil {
		return err
	}
	if h.Allocate != nil && len(errs) == 0 {
		if old == nil && o.Options.IsDryRun() {
			// What is allocated may be that of the object which is there, in the way of itself.
			if err := o.refusedNow(); err != nil {
				return err
			}
		}
		if errs, err = h.Allocate(o, obj, old); err != nil {
			return err
		}
	}
	if err := o.Invalid(o.Info.Name, errs); err != nil {
		return err
	}
	if o.applying || o.attributes.Replaced() {
		model.DropNulls(obj)
	}
	if told != nil {
		o.Warn(*told)
		if h.Warnings != nil {
			o.Warn(h.Warnings(obj, old))
		}
	}
	return nil
}

// fillIn adds what clients leave out, and says who owns the fields then, if nobody has yet.
func (o *Op) fillIn(h *Strategy, model *schema.Model, obj, old tree.Object) error {
	if o.Other != nil {
		return nil
	}
	empty, err := o.defaults(h, model, obj, old)
	if err == nil && !o.applying && !o.owned {
		err = o.Track(obj, old)
	}
	if empty {
		model.Fill(obj)
	}
	return err
}

// defaults adds what is left out of an object. It reports whether it has lists that are empty
// now, and null once they are stored.
func (o *Op) defaults(h *Strategy, model *schema.Model, obj, old tree.Object) (empty bool, err error) {
	completed := obj
	part := o.partOf != nil && o.notStored()
	if part { // the rest is what it was, and defaults of this version are none of what is stored
		completed = runtime.DeepCopyJSON(obj)
	}
	if err := model.Default(completed); err != nil {
		return false, storage.Permanent{Err: status.EntityTooLarge(err.Error())} // no form has another error
	}
	if part && o.Subresource.Name == "status" {
		tree.CopyField(obj, completed, "status")
	}
	empty = model.FillKeeping(obj)
	if err := o.normalize(obj); err != nil {
		return empty, err
	}
	if h.Complete != nil {
		err = h.Complete(o, obj, old)
	}
	return empty, err
}

// prepare fills in what the server generates and takes out what cannot be written; it may
// depend on the user, who may be refused.
func (o *Op) prepare(h *Strategy, obj, old tree.Object) error {
	if h.Prepare != nil {
		h.Prepare(obj, old)
	}
	if h.ForUser != nil {
		return h.ForUser(o, obj, old)
	}
	return nil
}

// Check refuses an object that is complete if something is wrong with it. old is what it takes
// the place of, nil for a new one. Errors: Invalid with all that is wrong, and that it could
// not be found out.
func (o *Op) Check(obj, old tree.Object) error {
	errs, err := o.validate(o.Strategy(), obj, old, nil)
	if err != nil {
		return err
	}
	return o.Invalid(o.Info.Name, errs)
}

// validate is what is wrong with an object that is complete. The error is that it could not
// be found out.
func (o *Op) validate(h *Strategy, obj, old tree.Object, warnings *[]string) (errs field.ErrorList, err error) {
	defer o.ShowEmpty(obj)()
	if obj, old, err = o.withTexts(obj, old); err != nil {
		return nil, err
	}
	switch {
	case h.Validation == nil:
		errs = o.MetaErrors(obj, old)
	case o.Client || !h.TrustsNode:
		if errs, err = o.validateStored(h.Validation, obj, old, warnings); err != nil {
			return nil, err
		}
	}
	if h.ValidateWith == nil {
		return errs, nil
	}
	found, err := h.ValidateWith(o, obj, old)
	if err != nil {
		return nil, err
	}
	return append(errs, newErrors(found, errs)...), nil
}

// MetaErrors is what is wrong with an object's metadata by the rules that hold for every kind. The
// rule of its name is looked at once: it cannot be changed. What is wrong with an update upstream
// says twice, as every update is checked and as one of this kind.
func (r *Request) MetaErrors(obj, old tree.Object) field.ErrorList {
	meta := tree.As(obj["metadata"])
	var other field.ErrorList // in the place of what is said as one of this kind
	if r.Other != nil {
		other = r.saysOther()
	}
	switch {
	case old == nil && other != nil:
		return other
	case old == nil:
		return tree.ValidateMeta(meta, r.Resource.NameRule)
	}
	errs := tree.ValidateMeta(meta, tree.NamePath)
	update := tree.ValidateMetaUpdate(meta, tree.As(old["metadata"]))
	for _, e := range errs {
		if at, _, _ := strings.Cut(strings.TrimPrefix(e.Field, "metadata."), "["); at == "labels" || at == "annotations" || at == "managedFields" || strings.HasPrefix(at, "ownerReferences") {
			update = append(update, e)
		}
	}
	if other == nil {
		other = update
	}
	return append(append(errs, update...), other...)
}

// saysOther is what is wrong with what a custom resource says to be.
func (r *Request) saysOther() (errs field.ErrorList) {
	if r.Other.Kind != r.Resource.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), r.Other.Kind, "must be "+r.Resource.Kind))
	}
	if said, want := r.Other.GroupVersion().String(), r.Resource.GroupVersion().String(); said != want {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), said, "must be "+want))
	}
	return errs
}

// validateStored holds an object against what is said of the form in which it is stored.
func (r *Request) validateStored(v Validation, obj, old tree.Object, warnings *[]string) (field.ErrorList, error) {
	res := r.Resource
	if res.Conversion != "" {
		var err error
		if obj, err = res.ToStored(obj); err != nil {
			return nil, err
		}
		if old != nil {
			if old, err = res.ToStored(old); err != nil {
				return nil, err
			}
		}
	}
	if old == nil {
		return v.Create(obj, res.Namespaced, warnings), nil
	}
	return v.Update(r.Info.Subresource, obj, old, res.Namespaced, warnings), nil
}

// ShowEmpty gives an object the empty lists and maps that were sent and are not stored, until the
// function that it returns is called: validation sees them.
func (o *Op) ShowEmpty(obj tree.Object) (undo func()) { return o.showEmpty(obj, false) }

// showEmpty is ShowEmpty for admission, too, which sees JSON: it has those that upstream's types write.
func (o *Op) showEmpty(obj tree.Object, written bool) (undo func()) {
	if o.attributes.Replaced() { // it came of such JSON
		return func() {}
	}
	return o.emptied.Restore(obj, written, o.takesSent)
}

// takesSent reports whether a field, at the top of the object or below, is what the client has sent.
func (o *Op) takesSent(name string, top bool) bool {
	switch {
	case !top:
		return !slices.Contains(o.Strategy().Dropped, name)
	case o.Subresource != nil:
		return o.Subresource.Name == "status" && name == "status"
	case name == "status":
		return o.Resource.Subresource("status") == nil || o.current == nil && o.Resource.StatusOnCreate
	}
	return true
}

// whole reports whether the object itself is written, or its scale.
func (r *Request) whole() bool { return r.Subresource == nil || r.Subresource.Name == "scale" }

// newErrors returns the errors that are not among others. A body may have ten thousands of each.
func newErrors(errs, others field.ErrorList) field.ErrorList {
	if len(errs) == 0 || len(others) == 0 {
		return errs
	}
	type fault struct {
		kind        field.ErrorType
		at, because string
	}
	known := make(map[fault]struct{}, len(others))
	for _, o := range others {
		known[fault{o.Type, o.Field, o.Detail}] = struct{}{}
	}
	return slices.DeleteFunc(errs, func(e *field.Error) bool {
		_, ok := known[fault{e.Type, e.Field, e.Detail}]
		return ok
	})
}

func (o *Op) createNamed(obj, meta tree.Object) (w Written, err error) {
	defer func() { o.reconcileClaims(nil, w, err) }()
	o.claims.proposed = false
	err = o.complete(obj, nil, meta, nil)
	if err == nil {
		err = o.admitFinal(obj, nil)
	}
	if err == nil && o.sentVersion {
		err = apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if err != nil {
		return Written{}, o.refused(err)
	}
	ch, err := o.EncodeChange(proto.Op_OP_PUT, obj)
	if err != nil {
		return Written{}, err
	}
	return o.insert(ch)
}

// insert stores a new object. What this node already knows to be impossible is
// confirmed and refused without a log entry.
func (o *Op) insert(ch Change) (Written, error) {
	key := o.Key()
	if o.Options.IsDryRun() {
		if err := o.Store.Confirm(o.Context); err != nil {
			return Written{}, err
		}
		err := o.refusedHere(key)
		if err == nil && o.redecided == 0 && (race{&o.decision}).RulesStale() { // once: it need not be newer than now
			err = o.again(&storeerrors.RulesChangingError{Times: storage.MaxRulesChanged})
		}
		if err != nil {
			return Written{}, err
		}
		shown, err := o.withRaw(o.Resource, ch.Object)
		return Written{Object: shown, Created: true}, err
	}
	if err := o.refusedNow(); err != nil {
		return Written{}, err
	}
	w := o.entry(key, &ch)
	w.Condition = proto.Condition_CONDITION_ABSENT
	o.guard(w)
	o.claims.proposed = true
	v, outcome, err := storage.Propose(o.Context, o.storage(), w)
	switch {
	case err != nil:
		return Written{}, o.overLimit(err)
	case outcome == proto.Outcome_OUTCOME_APPLIED:
		return Written{Version: v, Object: ch.Object, Created: true}, nil
	case outcome == proto.Outcome_OUTCOME_RULES_CHANGED:
		return Written{}, o.again(&storeerrors.RulesChangingError{Times: storage.MaxRulesChanged})
	case outcome == proto.Outcome_OUTCOME_EXISTS:
		there, err := o.Store.Current(o.Resource.Table(), key)
		if err != nil {
			return Written{}, err
		}
		return Written{}, o.alreadyExists(there)
	}
	return Written{}, o.guardError(outcome)
}

// refusedNow says why the confirmed state would refuse a create, or nil.
func (o *Op) refusedNow() error {
	key := o.Key()
	if o.refusedHere(key) == nil {
		return nil
	}
	if err := o.Store.Confirm(o.Context); err != nil {
		return err
	}
	return o.refusedHere(key)
}

// refusedHere says why the local state would refuse a create, or nil.
func (o *Op) refusedHere(key string) error {
	if err := o.definitionError(); err != nil {
		return err
	}
	if err := o.namespaceError(); err != nil {
		return err
	}
	v, err := o.Store.Current(o.Resource.Table(), key)
	if err == nil && v != nil {
		err = o.alreadyExists(v)
	}
	return err
}

// namespaceError says why the namespace in the local state would refuse a create, or nil.
func (r *Request) namespaceError() error {
	if !r.Resource.Namespaced {
		return nil
	}
	ns, err := r.Store.Current(NamespacesTable, r.Info.ObjectNamespace)
	switch {
	case err != nil:
		return err
	case ns == nil:
		return r.guardError(proto.Outcome_OUTCOME_GUARD_ABSENT)
	case ns.Flags&proto.FlagTerminating != 0:
		return r.guardError(proto.Outcome_OUTCOME_GUARD_TERMINATING)
	}
	return nil
}

// alreadyExists is the refusal of a create. there is what is in its way, nil if
// that has gone meanwhile.
func (o *Op) alreadyExists(there *mvcc.Version) error {
	e := status.AlreadyExists(o.Resource.GroupResource(), o.Info.Name)
	if o.mayBeGenerated { // also if the client has named it, as upstream
		e = status.NoUniqueName(o.Resource.GroupResource(), o.Info.Name)
	}
	if there != nil && there.Flags&proto.FlagTerminating != 0 {
		e.ErrStatus.Message = "object is being deleted: " + e.ErrStatus.Message
	}
	return e
}

// createGenerated tries several names. What the server generates may contain the
// name, so each attempt begins with the object as it was sent.
func (o *Op) createGenerated(sent tree.Object) (Written, error) {
	for attempts := generateAttempts; attempts > 0; attempts-- {
		obj, meta, err := tree.WithOwnMeta(sent)
		if err != nil {
			return Written{}, err
		}
		base := tree.Text(meta, "generateName")
		if meta["name"] = base; !o.Resource.BaseIsName {
			meta["name"] = generatedName(base)
		}
		o.Info.Name, o.nameGenerated = tree.Text(meta, "name"), true
		w, err := o.createNamed(obj, meta)
		if !apierrors.IsAlreadyExists(err) {
			return w, err
		}
	}
	return Written{}, status.NoUniqueName(o.Resource.GroupResource(), o.Info.Name)
}

const (
	nameAlphabet  = "bcdfghjklmnpqrstvwxz2456789"
	generatedTail = 5
	generatedMax  = 63
)

// generatedName appends five characters to base, which is cut to make room. The
// alphabet has no vowels and no digits that look like letters.
func generatedName(base string) string {
	if len(base) > generatedMax-generatedTail {
		base = base[:generatedMax-generatedTail]
	}
	var tail [generatedTail]byte
	for i := range tail {
		tail[i] = nameAlphabet[rand.IntN(len(nameAlphabet))]
	}
	return base + string(tail[:])
}

// guardError is the answer to a create in a namespace that is not there or on
// its way out.
func (r *Request) guardError(outcome proto.Outcome) error {
	if err := r.definitionError(); err != nil {
		return err
	}
	ns := r.Info.ObjectNamespace
	if outcome == proto.Outcome_OUTCOME_GUARD_ABSENT {
		return status.NotFound(NamespacesGR, ns)
	}
	reason := "unable to create new content in namespace " + ns + " because it is being terminated"
	e := apierrors.NewForbidden(r.Resource.GroupResource(), r.Info.Name, errors.New(reason))
	e.ErrStatus.Details.Causes = append(e.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    "NamespaceTerminating",
		Message: "namespace " + ns + " is being terminated",
		Field:   "metadata.namespace",
	})
	return e
}

// definitionError says why the definition of a custom resource refuses creates, nil if
// it does not: it is on its way out, or gone.
func (r *Request) definitionError() error {
	of := crd.Of(r.Resource)
	if of == nil {
		return nil
	}
	v, err := r.Store.Current(crd.Table, of.Definition().Metadata.Name)
	switch {
	case err != nil:
		return err
	case v == nil:
		return status.NoSuchResource()
	case v.Flags&proto.FlagTerminating != 0:
		return r.DefinitionTerminating()
	}
	return nil
}

// DefinitionTerminating is the answer to a create of what is on its way out.
func (r *Request) DefinitionTerminating() error {
	return apierrors.NewForbidden(r.Resource.GroupResource(), r.Info.Name, errTerminating)
}

var errTerminating = errors.New("create not allowed while custom resource definition is terminating")

var NamespacesGR = apischema.GroupResource{Resource: NamespacesTable}
