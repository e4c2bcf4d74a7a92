package objects

import (
	"strconv"

	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// keyPath is how upstream names the place of an object in its messages: its key in etcd, in which
// dry runs do not look.
func (o *Op) keyPath() string {
	place := o.Resource.GroupResource()
	name := oldPlaces[place]
	switch {
	case name != "":
	case o.Resource.Custom, place.Group == "apiextensions.k8s.io", place.Group == "apiregistration.k8s.io":
		name = place.Group + "/" + place.Resource
	default:
		name = place.Resource
	}
	if o.Options.IsDryRun() {
		return "/" + name + "/" + o.Key()
	}
	return "/registry/" + name + "/" + o.Key()
}

// oldPlaces are upstream's SpecialDefaultResourcePrefixes.
var oldPlaces = map[schema.GroupResource]string{
	{Resource: "replicationcontrollers"}:                "controllers",
	{Resource: "endpoints"}:                             "services/endpoints",
	{Resource: "nodes"}:                                 "minions",
	{Resource: "services"}:                              "services/specs",
	{Group: "networking.k8s.io", Resource: "ingresses"}: "ingress",
}

// parseObjectRevision reads metadata.resourceVersion of a body; zero stands for
// none.
func parseObjectRevision(meta tree.Object) (proto.Revision, error) {
	s := tree.Text(meta, "resourceVersion")
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, storage.Permanent{Err: status.InvalidResourceVersion(s)}
	}
	return proto.Revision(n), nil
}

// checkSent is CheckIdentity of a whole body.
func (o *Op) checkSent(sent tree.Object, cur *mvcc.Version) error {
	meta, err := tree.Meta(sent)
	if err != nil {
		return err
	}
	return o.CheckIdentity(meta, cur)
}

// CheckIdentity checks the uid and resourceVersion that the metadata of a body or a patch names
// against the current version.
func (o *Op) CheckIdentity(meta tree.Object, cur *mvcc.Version) error {
	if uid := tree.Text(meta, "uid"); uid != "" && uid != cur.UID {
		return status.UIDPrecondition(o.Resource.GroupResource(), o.Info.Name, o.keyPath(), uid, cur.UID)
	}
	return o.checkRevision(meta, cur)
}

// CheckStorage is CheckIdentity in the words of upstream's storage, which compares texts: a version
// that is no number is that of no object. Empty says nothing.
func (o *Op) CheckStorage(uid, version string, cur *mvcc.Version) error {
	if uid != "" && uid != cur.UID {
		return status.UIDPrecondition(o.Resource.GroupResource(), o.Info.Name, o.keyPath(), uid, cur.UID)
	}
	if have := cur.Revision.String(); version != "" && version != have {
		return status.VersionPrecondition(o.Resource.GroupResource(), o.Info.Name, o.keyPath(), version, have)
	}
	return nil
}

// checkRevision is CheckIdentity without the uid.
func (o *Op) checkRevision(meta tree.Object, cur *mvcc.Version) error {
	rev, err := parseObjectRevision(meta)
	switch {
	case err != nil:
		return err
	case rev == 0 && !o.unconditional():
		return storage.Permanent{Err: status.MustSpecifyVersion(o.Resource.GroupResource(), o.Info.Name)}
	case rev == 0 || rev == cur.Revision:
		return nil
	case rev < cur.Revision:
		// What the client has seen is older than what this node has, and the
		// cluster can only be further.
		return storage.Permanent{Err: status.Conflict(o.Resource.GroupResource(), o.Info.Name)}
	}
	return status.Conflict(o.Resource.GroupResource(), o.Info.Name)
}

// unconditional reports whether a write may leave out which version it is about. A Scale may,
// whatever it is of.
func (o *Op) unconditional() bool {
	return o.Resource.UnconditionalUpdate || o.Subresource != nil && o.Subresource.Name == "scale"
}

// Invalid is the 422 of validation. It names the group whose rules are not kept: an object that is
// stored as one of another group is validated as that.
func (o *Op) Invalid(name string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	o.Store.logPanics(o.Resource, errs)
	kind := o.Resource.GVK().GroupKind()
	if o.Resource.StorageVersion != "" { // upstream calls it by the group in which it is stored
		kind.Group = o.Resource.StorageGroup
	}
	if o.Other != nil {
		kind = o.Other.GroupKind()
	}
	return status.Invalid(kind, name, errs)
}

// logPanics logs panics that became errors of a validation, one of each place a minute: a client that
// may write such an object can write it in a loop.
func (s *Store) logPanics(res *kinds.Resource, errs field.ErrorList) {
	for _, e := range errs {
		if p, ok := e.BadValue.(ValidationPanic); ok {
			s.panics.Error(s.Log, res.CodeName()+" "+p.Where(), "the validation of an object ended with a panic, and the object was refused",
				"resource", res.CodeName(), "err", e.Detail, "at", p.Where(), "stack", p.Stack())
		}
	}
}

func (o *Op) NotFound() error { return status.NotFound(o.Resource.GroupResource(), o.Info.Name) }

// CheckPreconditions compares the version with what the client wants to delete. A
// node that lags finds mismatches that are none; GuaranteedUpdate confirms them.
func (o *Op) CheckPreconditions(options *metav1.DeleteOptions, cur *mvcc.Version) error {
	p := options.Preconditions
	if p == nil {
		return nil
	}
	if p.UID != nil && string(*p.UID) != cur.UID {
		return status.DeleteUIDPrecondition(o.Resource.GVK().GroupKind(), o.Info.Name, string(*p.UID), cur.UID)
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != cur.Revision.String() {
		return status.DeleteVersionPrecondition(o.Resource.GVK().GroupKind(), o.Info.Name, *p.ResourceVersion, cur.Revision.String())
	}
	return nil
}
