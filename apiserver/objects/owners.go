package objects

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/types/tree"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// What upstream says of owners that are named twice, once of what was sent and once of what is
// left of it when plugins have seen it. Patches only come by the second.
const (
	sameOwners              = ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %v"
	sameOwnersAfterMutation = ".metadata.ownerReferences contains duplicate entries after mutating admission happens; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %v"
)

// maxOwnersNamed bounds of how many owners a warning names the uids: nothing bounds how many there are.
const maxOwnersNamed = 100

// dedupOwners leaves out of the metadata the owners that are there already, and warns of them.
// Two are the same if all their fields are.
func (r *Request) dedupOwners(meta tree.Object, warning string) {
	refs := tree.List(meta["ownerReferences"])
	if len(refs) < 2 {
		return
	}
	var (
		kept []any
		uids []string
		seen = map[string][]any{} // by uid: few of them have the same
	)
	for _, ref := range refs {
		uid := tree.Text(tree.As(ref), "uid")
		if !slices.ContainsFunc(seen[uid], func(x any) bool { return tree.Equal(x, ref) }) {
			seen[uid] = append(seen[uid], ref)
			kept = append(kept, ref)
		} else if uids = append(uids, uid); len(uids) > maxOwnersNamed {
			uids = uids[:maxOwnersNamed]
		}
	}
	if len(kept) == len(refs) {
		return
	}
	meta["ownerReferences"] = kept
	r.Warn([]string{fmt.Sprintf(warning, strings.Join(uids, ", "))})
}

// dedupPosted is dedupOwners for what is posted and not stored.
func (r *Request) dedupPosted(in runtime.Object) {
	meta, err := apimeta.Accessor(in)
	if err != nil {
		return // it has no metadata, and so no owners
	}
	refs := meta.GetOwnerReferences()
	if ns := meta.GetNamespace(); len(refs) < 2 || ns != "" && ns != r.Info.ObjectNamespace {
		return // what is of another namespace is refused before
	}
	list := make([]any, len(refs))
	for i := range refs {
		ref, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&refs[i])
		if err != nil {
			return
		}
		list[i] = ref
	}
	fields := tree.Object{"ownerReferences": list}
	r.dedupOwners(fields, sameOwners)
	kept := tree.List(fields["ownerReferences"])
	if len(kept) == len(refs) {
		return
	}
	unique := make([]metav1.OwnerReference, len(kept))
	for i, ref := range kept {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree.As(ref), &unique[i]); err != nil {
			return
		}
	}
	meta.SetOwnerReferences(unique)
}
