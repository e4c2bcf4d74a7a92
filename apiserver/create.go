package apiserver

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/crd"
	"github.com/quorate/quorate/apiserver/revise"
	"github.com/quorate/quorate/apiserver/rules"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// generateAttempts is how many names are tried for a generateName.
const generateAttempts = 8

// readWrite is how a write with an object begins: its options, the form of the
// answer, and the object, which fits the model.
func (c *call) readWrite(optionsKind string) (f codec.Format, obj tree.Object, err error) {
	if err = c.writeOptions(optionsKind); err != nil {
		return
	}
	if f, err = c.format(c.res, codec.ShapeObject); err != nil {
		return
	}
	model, err := c.model()
	if err != nil {
		return
	}
	obj, err = c.readObject(c.res, model)
	return
}

func (c *call) create() error {
	f, obj, err := c.readWrite("CreateOptions")
	if err != nil {
		return err
	}
	w, err := c.createObject(obj)
	if err != nil {
		return err
	}
	return c.answer(f, http.StatusCreated, w)
}

// createObject completes, validates and stores a decoded object that fits the
// model. With generateName it tries several names.
func (o *op) createObject(obj tree.Object) (written, error) {
	meta, err := tree.Meta(obj)
	if err != nil {
		return written{}, err
	}
	if err := tree.MatchNamespace(meta, o.res.Namespaced, o.info.ObjectNamespace); err != nil {
		return written{}, err
	}
	if o.q.IsDryRun() {
		// It is storage that refuses it upstream, where no dry run comes by: clients try
		// copies of objects that they have read.
		delete(meta, "resourceVersion")
	}
	if err := tree.PrepareCreate(meta, o.res.HasGeneration, o.s.cfg.Now()); err != nil {
		return written{}, err
	}
	if o.res.Subresource("status") != nil {
		delete(obj, "status")
	}
	if tree.Text(meta, "name") == "" && tree.Text(meta, "generateName") != "" {
		return o.createGenerated(obj)
	}
	o.info.Name = tree.Text(meta, "name")
	return o.createNamed(obj, meta)
}

// complete defaults an object, fills in what the server generates, and validates
// all of it. errs is what is wrong with it so far; old is nil for a create.
// Everything that is wrong is refused at once.
func (o *op) complete(obj, old tree.Object, errs field.ErrorList) error {
	model, err := o.model()
	if err != nil {
		return err
	}
	if err := model.Default(obj); err != nil {
		return revise.Settled{Err: status.EntityTooLarge(err.Error())} // no form has another error
	}
	model.Fill(obj)
	if err := o.normalize(obj); err != nil {
		return err
	}
	h := o.strategy()
	if h.complete != nil {
		if err := h.complete(o, obj, old); err != nil {
			return err
		}
	}
	if !o.applying {
		if err := o.track(obj, old); err != nil {
			return err
		}
	}
	r := &rules.Rules{}
	if !o.res.Custom && (o.sub == nil || o.sub.Name == "scale") {
		// Other subresources have rules of their own.
		r = rules.Of(o.res.GroupResource())
	}
	if h.prepare != nil {
		h.prepare(obj, old)
	}
	if r.Prepare != nil {
		r.Prepare(obj, old)
	}
	if h.forUser != nil {
		if err := h.forUser(o, obj, old); err != nil {
			return err
		}
	}
	var found field.ErrorList
	if !h.validatesAll {
		found, err = o.checkModel(model, obj)
	}
	if err != nil {
		return err
	}
	errs = append(errs, found...)
	if old != nil {
		errs = append(errs, immutableErrors(o.res, obj, old)...)
	}
	if r.Validate != nil {
		errs = append(errs, without(r.Validate(obj, old), errs)...)
	}
	if r.ValidateClients != nil && o.client {
		errs = append(errs, without(r.ValidateClients(obj, old), errs)...)
	}
	if h.validate != nil {
		found, err := h.validate(o, obj, old)
		if err != nil {
			return err
		}
		errs = append(errs, without(found, errs)...)
	}
	if h.allocate != nil && len(errs) == 0 {
		if errs, err = h.allocate(o, obj, old); err != nil {
			return err
		}
	}
	if len(errs) == 0 {
		o.unheeded(obj)
	}
	return o.invalid(o.info.Name, errs)
}

// unheeded tells who writes an object what it asks for in vain.
func (o *op) unheeded(obj tree.Object) {
	if !o.client || o.sub != nil || len(o.res.Unenforced) == 0 {
		return // nobody is there to be told, or a controller that writes a status
	}
	o.warn(o.res.Unheeded(obj))
}

// without returns the errors that are not among others. A body may have ten thousands of each.
func without(errs, others field.ErrorList) field.ErrorList {
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

func (o *op) createNamed(obj, meta tree.Object) (w written, err error) {
	defer func() { o.reconcileClaims(nil, w, err) }()
	if err := o.complete(obj, nil, tree.ValidateMeta(meta, o.res.NameRule)); err != nil {
		return written{}, err
	}
	ch, err := o.encodeChange(proto.Op_OP_PUT, obj)
	if err != nil {
		return written{}, err
	}
	return o.insert(ch)
}

// insert stores a new object. What this node already knows to be impossible is
// confirmed and refused without a log entry.
func (o *op) insert(ch change) (written, error) {
	key := o.key()
	if o.q.IsDryRun() {
		if err := o.s.confirm(o.ctx); err != nil {
			return written{}, err
		}
		err := o.refusedHere(key)
		return written{obj: ch.obj, created: true}, err
	}
	if o.refusedHere(key) != nil {
		if err := o.s.confirm(o.ctx); err != nil {
			return written{}, err
		}
		if err := o.refusedHere(key); err != nil {
			return written{}, err
		}
	}
	w := o.entry(key, &ch)
	w.Condition = proto.Condition_CONDITION_ABSENT
	o.guard(w)
	v, outcome, err := revise.Propose(o.ctx, o.s.cfg.Store, w)
	switch {
	case err != nil:
		return written{}, err
	case outcome == proto.Outcome_OUTCOME_APPLIED:
		return written{version: v, obj: ch.obj, created: true}, nil
	case outcome == proto.Outcome_OUTCOME_EXISTS:
		there, err := o.s.current(o.res.Table(), key)
		if err != nil {
			return written{}, err
		}
		return written{}, o.alreadyExists(there)
	}
	return written{}, o.guardError(outcome)
}

// refusedHere says why the local state would refuse a create, or nil.
func (o *op) refusedHere(key string) error {
	if err := o.definitionError(); err != nil {
		return err
	}
	if o.res.Namespaced {
		ns, err := o.s.current(namespacesTable, o.info.ObjectNamespace)
		switch {
		case err != nil:
			return err
		case ns == nil:
			return o.guardError(proto.Outcome_OUTCOME_GUARD_ABSENT)
		case ns.Flags&proto.FlagTerminating != 0:
			return o.guardError(proto.Outcome_OUTCOME_GUARD_TERMINATING)
		}
	}
	v, err := o.s.current(o.res.Table(), key)
	if err == nil && v != nil {
		err = o.alreadyExists(v)
	}
	return err
}

// alreadyExists is the refusal of a create. there is what is in its way, nil if
// that has gone meanwhile.
func (o *op) alreadyExists(there *mvcc.Version) error {
	e := status.AlreadyExists(o.res.GroupResource(), o.info.Name)
	if there != nil && there.Flags&proto.FlagTerminating != 0 {
		e.ErrStatus.Message = "object is being deleted: " + e.ErrStatus.Message
	}
	return e
}

// createGenerated tries several names. What the server generates may contain the
// name, so each attempt begins with the object as it was sent.
func (o *op) createGenerated(sent tree.Object) (written, error) {
	for range generateAttempts {
		obj, meta, err := tree.WithOwnMeta(sent)
		if err != nil {
			return written{}, err
		}
		meta["name"] = generatedName(tree.Text(meta, "generateName"))
		o.info.Name = tree.Text(meta, "name")
		w, err := o.createNamed(obj, meta)
		if !apierrors.IsAlreadyExists(err) {
			return w, err
		}
	}
	return written{}, status.NoUniqueName(o.res.GroupResource(), o.info.Name)
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
func (o *op) guardError(outcome proto.Outcome) error {
	if err := o.definitionError(); err != nil {
		return err
	}
	ns := o.info.ObjectNamespace
	if outcome == proto.Outcome_OUTCOME_GUARD_ABSENT {
		return status.NotFound(namespacesResource, ns)
	}
	reason := "unable to create new content in namespace " + ns + " because it is being terminated"
	e := apierrors.NewForbidden(o.res.GroupResource(), o.info.Name, errors.New(reason))
	e.ErrStatus.Details.Causes = append(e.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    "NamespaceTerminating",
		Message: "namespace " + ns + " is being terminated",
		Field:   "metadata.namespace",
	})
	return e
}

// definitionError says why the definition of a custom resource refuses creates, nil if
// it does not: it is on its way out, or gone.
func (o *op) definitionError() error {
	of := crd.Of(o.res)
	if of == nil {
		return nil
	}
	v, err := o.s.current(crd.Table, of.Definition().Metadata.Name)
	switch {
	case err != nil:
		return err
	case v == nil:
		return status.NoSuchResource()
	case v.Flags&proto.FlagTerminating != 0:
		return definitionTerminating(o.res)
	}
	return nil
}
