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
	if err = c.q.CheckModify(optionsKind); err != nil {
		return
	}
	c.kind.DryRun = c.q.IsDryRun()
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
func (c *call) createObject(obj tree.Object) (written, error) {
	meta, err := tree.Meta(obj)
	if err != nil {
		return written{}, err
	}
	if err := tree.MatchNamespace(meta, c.res.Namespaced, c.info.ObjectNamespace); err != nil {
		return written{}, err
	}
	if c.q.IsDryRun() {
		// It is storage that refuses it upstream, where no dry run comes by: clients try
		// copies of objects that they have read.
		delete(meta, "resourceVersion")
	}
	if err := tree.PrepareCreate(meta, c.res.HasGeneration, c.s.cfg.Now()); err != nil {
		return written{}, err
	}
	if c.res.Subresource("status") != nil {
		delete(obj, "status")
	}
	if tree.Text(meta, "name") == "" && tree.Text(meta, "generateName") != "" {
		return c.createGenerated(obj)
	}
	c.info.Name = tree.Text(meta, "name")
	return c.createNamed(obj, meta)
}

// complete defaults an object, fills in what the server generates, and validates
// all of it. errs is what is wrong with it so far; old is nil for a create.
// Everything that is wrong is refused at once.
func (c *call) complete(obj, old tree.Object, errs field.ErrorList) error {
	model, err := c.model()
	if err != nil {
		return err
	}
	if err := model.Default(obj); err != nil {
		return revise.Settled{Err: status.EntityTooLarge(err.Error())} // no form has another error
	}
	model.Fill(obj)
	if err := c.normalize(obj); err != nil {
		return err
	}
	h := c.hooks()
	if h.complete != nil {
		if err := h.complete(c, obj, old); err != nil {
			return err
		}
	}
	if !c.applying {
		if err := c.track(obj, old); err != nil {
			return err
		}
	}
	r := &rules.Rules{}
	if !c.res.Custom && (c.sub == nil || c.sub.Name == "scale") {
		// Other subresources have rules of their own.
		r = rules.Of(c.res.GroupResource())
	}
	if h.prepare != nil {
		h.prepare(obj, old)
	}
	if r.Prepare != nil {
		r.Prepare(obj, old)
	}
	if h.forUser != nil {
		if err := h.forUser(c, obj, old); err != nil {
			return err
		}
	}
	var found field.ErrorList
	if !h.validatesAll {
		found, err = c.checkModel(model, obj)
	}
	if err != nil {
		return err
	}
	errs = append(errs, found...)
	if old != nil {
		errs = append(errs, immutableErrors(c.res, obj, old)...)
	}
	if r.Validate != nil {
		errs = append(errs, without(r.Validate(obj, old), errs)...)
	}
	if r.ValidateClients != nil && c.r != nil {
		errs = append(errs, without(r.ValidateClients(obj, old), errs)...)
	}
	if h.validate != nil {
		found, err := h.validate(c, obj, old)
		if err != nil {
			return err
		}
		errs = append(errs, without(found, errs)...)
	}
	if h.allocate != nil && len(errs) == 0 {
		if errs, err = h.allocate(c, obj, old); err != nil {
			return err
		}
	}
	if len(errs) == 0 {
		c.unheeded(obj)
	}
	return c.invalid(c.info.Name, errs)
}

// unheeded tells who writes an object what it asks for in vain.
func (c *call) unheeded(obj tree.Object) {
	if c.r == nil || c.sub != nil || len(c.res.Unenforced) == 0 {
		return // nobody is there to be told, or a controller that writes a status
	}
	c.warn(c.res.Unheeded(obj))
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

func (c *call) createNamed(obj, meta tree.Object) (w written, err error) {
	defer func() { c.settleClaims(nil, w, err) }()
	if err := c.complete(obj, nil, tree.ValidateMeta(meta, c.res.NameRule)); err != nil {
		return written{}, err
	}
	ch, err := c.store(proto.Op_OP_PUT, obj)
	if err != nil {
		return written{}, err
	}
	return c.insert(ch)
}

// insert stores a new object. What this node already knows to be impossible is
// confirmed and refused without a log entry.
func (c *call) insert(ch change) (written, error) {
	key := c.key()
	if c.q.IsDryRun() {
		if err := c.s.confirm(c.ctx); err != nil {
			return written{}, err
		}
		err := c.refusedHere(key)
		return written{obj: ch.obj, created: true}, err
	}
	if c.refusedHere(key) != nil {
		if err := c.s.confirm(c.ctx); err != nil {
			return written{}, err
		}
		if err := c.refusedHere(key); err != nil {
			return written{}, err
		}
	}
	w := c.entry(key, &ch)
	w.Condition = proto.Condition_CONDITION_ABSENT
	c.guard(w)
	v, outcome, err := revise.Propose(c.ctx, c.s.cfg.Store, w)
	switch {
	case err != nil:
		return written{}, err
	case outcome == proto.Outcome_OUTCOME_APPLIED:
		return written{version: v, obj: ch.obj, created: true}, nil
	case outcome == proto.Outcome_OUTCOME_EXISTS:
		there, err := c.s.current(c.res.Table(), key)
		if err != nil {
			return written{}, err
		}
		return written{}, c.alreadyExists(there)
	}
	return written{}, c.guardError(outcome)
}

// refusedHere says why the local state would refuse a create, or nil.
func (c *call) refusedHere(key string) error {
	if err := c.definitionError(); err != nil {
		return err
	}
	if c.res.Namespaced {
		ns, err := c.s.current(namespacesTable, c.info.ObjectNamespace)
		switch {
		case err != nil:
			return err
		case ns == nil:
			return c.guardError(proto.Outcome_OUTCOME_GUARD_ABSENT)
		case ns.Flags&proto.FlagTerminating != 0:
			return c.guardError(proto.Outcome_OUTCOME_GUARD_TERMINATING)
		}
	}
	v, err := c.s.current(c.res.Table(), key)
	if err == nil && v != nil {
		err = c.alreadyExists(v)
	}
	return err
}

// alreadyExists is the refusal of a create. there is what is in its way, nil if
// that has gone meanwhile.
func (c *call) alreadyExists(there *mvcc.Version) error {
	e := status.AlreadyExists(c.res.GroupResource(), c.info.Name)
	if there != nil && there.Flags&proto.FlagTerminating != 0 {
		e.ErrStatus.Message = "object is being deleted: " + e.ErrStatus.Message
	}
	return e
}

// createGenerated tries several names. What the server generates may contain the
// name, so each attempt begins with the object as it was sent.
func (c *call) createGenerated(sent tree.Object) (written, error) {
	for range generateAttempts {
		obj, meta, err := tree.WithOwnMeta(sent)
		if err != nil {
			return written{}, err
		}
		meta["name"] = generatedName(tree.Text(meta, "generateName"))
		c.info.Name = tree.Text(meta, "name")
		w, err := c.createNamed(obj, meta)
		if !apierrors.IsAlreadyExists(err) {
			return w, err
		}
	}
	return written{}, status.NoUniqueName(c.res.GroupResource(), c.info.Name)
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
func (c *call) guardError(outcome proto.Outcome) error {
	if err := c.definitionError(); err != nil {
		return err
	}
	ns := c.info.ObjectNamespace
	if outcome == proto.Outcome_OUTCOME_GUARD_ABSENT {
		return status.NotFound(namespacesResource, ns)
	}
	reason := "unable to create new content in namespace " + ns + " because it is being terminated"
	e := apierrors.NewForbidden(c.res.GroupResource(), c.info.Name, errors.New(reason))
	e.ErrStatus.Details.Causes = append(e.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    "NamespaceTerminating",
		Message: "namespace " + ns + " is being terminated",
		Field:   "metadata.namespace",
	})
	return e
}

// definitionError says why the definition of a custom resource refuses creates, nil if
// it does not: it is on its way out, or gone.
func (c *call) definitionError() error {
	of := crd.Of(c.res)
	if of == nil {
		return nil
	}
	v, err := c.s.current(crd.Table, of.Definition().Metadata.Name)
	switch {
	case err != nil:
		return err
	case v == nil:
		return status.NoSuchResource()
	case v.Flags&proto.FlagTerminating != 0:
		return definitionTerminating(c.res)
	}
	return nil
}
