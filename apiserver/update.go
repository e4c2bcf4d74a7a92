package apiserver

import (
	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/revise"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
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
func (c *call) matchPath(obj tree) error {
	meta, err := metaOf(obj)
	if err != nil {
		return err
	}
	if err := matchNamespace(meta, c.res, c.info.objectNamespace); err != nil {
		return err
	}
	return matchName(meta, c.info.Name)
}

func (c *call) decideUpdate(sent tree, cur *mvcc.Version) (change, error) {
	obj, meta, err := shallow(sent)
	if err != nil {
		return change{}, err
	}
	rev, err := parseObjectRevision(meta)
	switch {
	case err != nil:
		return change{}, err
	case cur == nil && c.res.CreateOnUpdate && rev == 0:
		return c.decideInsert(obj, meta)
	case cur == nil:
		return change{}, c.notFound()
	case rev == 0 && !c.res.UnconditionalUpdate:
		return change{}, revise.Settled{Err: status.MustSpecifyVersion(c.res.GroupResource(), c.info.Name)}
	}
	if err := c.checkIdentity(meta, cur); err != nil {
		return change{}, err
	}
	old, err := c.decode(cur)
	if err != nil {
		return change{}, err
	}
	if c.res.Subresource("status") != nil {
		carry(obj, old, "status")
	}
	return c.replace(cur, obj, old)
}

// decideInsert is create-on-update.
func (c *call) decideInsert(obj, meta tree) (change, error) {
	if err := c.alsoAllowed("create"); err != nil {
		return change{}, err
	}
	delete(meta, "resourceVersion") // "0" is no version
	if err := prepareCreate(meta, c.res, c.s.cfg.Now()); err != nil {
		return change{}, err
	}
	if c.res.Subresource("status") != nil {
		delete(obj, "status")
	}
	if err := c.complete(obj, nil, validateMeta(meta, c.res)); err != nil {
		return change{}, err
	}
	return c.store(proto.Op_OP_PUT, obj)
}

// alsoAllowed asks for a second permission that a request turns out to need.
func (c *call) alsoAllowed(verb string) error {
	a := c.attributes()
	a.Verb = verb
	d, reason, err := c.s.cfg.Authorizer.Authorize(c.ctx, a)
	if d == auth.Allow {
		return nil
	}
	if err != nil && reason == "" {
		c.s.cfg.Log.Error("authorization is incomplete", "err", err, "user", c.user.Name)
	}
	return revise.Settled{Err: auth.Forbidden(a, reason)}
}

// carry makes a field of obj what it was in old.
func carry(obj, old tree, name string) {
	if v, ok := old[name]; ok {
		obj[name] = v
	} else {
		delete(obj, name)
	}
}

// replace decides on a new content for the current version. obj fits the model
// and has metadata of its own; old is cur decoded. Identical bytes are no write;
// the update that removes the last finalizer of a deleting object deletes it.
func (c *call) replace(cur *mvcc.Version, obj, old tree) (change, error) {
	meta, err := metaOf(obj)
	if err != nil {
		return change{}, err
	}
	oldMeta, err := metaOf(old)
	if err != nil {
		return change{}, err
	}
	prepareUpdate(meta, oldMeta)
	errs := append(validateMeta(meta, c.res), validateMetaUpdate(meta, oldMeta)...)
	if err := c.complete(obj, old, errs); err != nil {
		return change{}, err
	}
	return c.settle(cur, obj, old, meta, oldMeta)
}

// settle is the second half of replace, for an object that is complete.
func (c *call) settle(cur *mvcc.Version, obj, old, meta, oldMeta tree) (change, error) {
	if c.res.HasGeneration {
		countGeneration(c.res, obj, old, meta)
	}
	op := proto.Op_OP_PUT
	if c.released(obj, meta, oldMeta) {
		op = proto.Op_OP_DELETE
	}
	if c.applying && onlyTimesDiffer(obj, old, meta, oldMeta) {
		carry(meta, oldMeta, "managedFields")
	}
	ch, err := c.store(op, obj)
	if err != nil {
		return change{}, err
	}
	ch.none = op == proto.Op_OP_PUT && unchanged(&ch, cur)
	return ch, nil
}

// released reports whether nothing holds a deleting object any more.
func (c *call) released(obj, meta, oldMeta tree) bool {
	if text(oldMeta, "deletionTimestamp") == "" || hasFinalizers(meta) {
		return false
	}
	if grace, _ := wholeNumber(oldMeta["deletionGracePeriodSeconds"]); grace > 0 {
		return false
	}
	h := c.hooks()
	return h.holds == nil || !h.holds(obj)
}
