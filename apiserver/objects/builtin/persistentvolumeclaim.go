package builtin

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/quota"
	"github.com/quorate/quorate/apiserver/types/tree"
)

var claimStrategy = objects.Strategy{Prepare: prepareClaim, Usage: usageOf(quota.VolumeClaims)}

// prepareClaim makes the two fields that say where a volume's content comes from agree: what an
// older client sends, which knows dataSource alone, is in both. Sources in other namespaces
// are behind a gate that is closed (CrossNamespaceVolumeDataSource).
func prepareClaim(obj, old tree.Object) {
	spec, was := tree.Clone(obj["spec"]), tree.As(old["spec"])
	if tree.Text(tree.As(spec["dataSourceRef"]), "namespace") != "" && was["dataSourceRef"] == nil {
		delete(spec, "dataSourceRef")
	}
	if was["dataSource"] == nil && was["dataSourceRef"] == nil && spec["dataSourceRef"] == nil && !fromClaimOrSnapshot(tree.As(spec["dataSource"])) {
		delete(spec, "dataSource")
	}
	source, ref := tree.As(spec["dataSource"]), tree.As(spec["dataSourceRef"])
	switch {
	case source != nil && ref == nil:
		spec["dataSourceRef"] = sourceOf(source)
	case ref != nil && source == nil && tree.Text(ref, "namespace") == "":
		spec["dataSource"] = sourceOf(ref)
	}
	obj["spec"] = spec
}

// sourceOf has the fields that both have.
func sourceOf(ref tree.Object) tree.Object {
	out := tree.Object{}
	for _, name := range [...]string{"apiGroup", "kind", "name"} {
		tree.CopyField(out, ref, name)
	}
	return out
}

// fromClaimOrSnapshot: everything else in dataSource has been dropped since before there was
// dataSourceRef.
func fromClaimOrSnapshot(source tree.Object) bool {
	switch group := tree.Text(source, "apiGroup"); tree.Text(source, "kind") {
	case "PersistentVolumeClaim":
		return group == ""
	case "VolumeSnapshot":
		return group == "snapshot.storage.k8s.io"
	}
	return false
}
