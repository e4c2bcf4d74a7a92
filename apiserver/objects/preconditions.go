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
func (r *Request) keyPath() string {
	place := r.Resource.GroupResource()
	name := oldPlaces[place]
	switch {
	case name != "":
	case r.Resource.Custom, place.Group == "apiextensions.k8s.io", place.Group == "apiregistration.k8s.io":
		name = place.Group + "/" + place.Resource
	default:
		name = place.Resource
	}
	if r.Options.IsDryRun() {
		return "/" + name + "/" + r.Key()
	}
	return "/registry/" + name + "/" + r.Key()
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
func (r *Request) checkSent(sent tree.Object, cur *mvcc.Version) error {
	meta, err := tree.Meta(sent)
	if err != nil {
		return err
	}
	return r.CheckIdentity(meta, cur)
}

// CheckIdentity checks the uid and resourceVersion that the metadata of a body or a patch names
// against the current version.
func (r *Request) CheckIdentity(meta tree.Object, cur *mvcc.Version) error {
	if uid := tree.Text(meta, "uid"); uid != "" && uid != cur.UID {
		return status.UIDPrecondition(r.Resource.GroupResource(), r.Info.Name, r.keyPath(), uid, cur.UID)
	}
	return r.checkRevision(meta, cur)
}

// CheckStorage is CheckIdentity in the words of upstream's storage, which compares texts: a version
// that is no number is that of no object. Empty says nothing.
func (r *Request) CheckStorage(uid, version string, cur *mvcc.Version) error {
	if uid != "" && uid != cur.UID {
		return status.UIDPrecondition(r.Resource.GroupResource(), r.Info.Name, r.keyPath(), uid, cur.UID)
	}
	if have := cur.Revision.String(); version != "" && version != have {
		return status.VersionPrecondition(r.Resource.GroupResource(), r.Info.Name, r.keyPath(), version, have)
	}
	return nil
}

// checkRevision is CheckIdentity without the uid.
func (r *Request) checkRevision(meta tree.Object, cur *mvcc.Version) error {
	rev, err := parseObjectRevision(meta)
	switch {
	case err != nil:
		return err
	case rev == 0 && !r.unconditional():
		return storage.Permanent{Err: status.MustSpecifyVersion(r.Resource.GroupResource(), r.Info.Name)}
	case rev == 0 || rev == cur.Revision:
		return nil
	case rev < cur.Revision:
		// What the client has seen is older than what this node has, and the
		// cluster can only be further.
		return storage.Permanent{Err: status.Conflict(r.Resource.GroupResource(), r.Info.Name)}
	}
	return status.Conflict(r.Resource.GroupResource(), r.Info.Name)
}

// unconditional reports whether a write may leave out which version it is about. A Scale may,
// whatever it is of.
func (r *Request) unconditional() bool {
	return r.Resource.UnconditionalUpdate || r.Subresource != nil && r.Subresource.Name == "scale"
}

// Invalid is the 422 of validation. It names the group whose rules are not kept: an object that is
// stored as one of another group is validated as that.
func (r *Request) Invalid(name string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	r.Store.logPanics(r.Resource, errs)
	kind := r.Resource.GVK().GroupKind()
	if r.Resource.StorageVersion != "" { // upstream calls it by the group in which it is stored
		kind.Group = r.Resource.StorageGroup
	}
	if r.Other != nil {
		kind = r.Other.GroupKind()
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

func (r *Request) NotFound() error { return status.NotFound(r.Resource.GroupResource(), r.Info.Name) }

// CheckPreconditions compares the version with what the client wants to delete. A
// node that lags finds mismatches that are none; GuaranteedUpdate confirms them.
func (r *Request) CheckPreconditions(options *metav1.DeleteOptions, cur *mvcc.Version) error {
	p := options.Preconditions
	if p == nil {
		return nil
	}
	if p.UID != nil && string(*p.UID) != cur.UID {
		return status.DeleteUIDPrecondition(r.Resource.GVK().GroupKind(), r.Info.Name, string(*p.UID), cur.UID)
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != cur.Revision.String() {
		return status.DeleteVersionPrecondition(r.Resource.GVK().GroupKind(), r.Info.Name, *p.ResourceVersion, cur.Revision.String())
	}
	return nil
}
