package objects

import (
	"github.com/quorate/quorate/apiserver/types/tree"
)

// countGeneration raises metadata.generation if anything outside metadata and
// status has changed, or what of the metadata counts for the kind in writes of the whole object.
func (r *Request) countGeneration(obj, old, meta, oldMeta tree.Object) {
	res := r.Resource
	// A status that is no subresource of a custom resource is a field like others.
	plain := res.Custom && res.Subresource("status") == nil
	counts := res.GenerationOf != "" && r.whole()
	if specEqual(obj, old) && (!plain || tree.Equal(obj["status"], old["status"])) && (!counts || tree.Equal(meta[res.GenerationOf], oldMeta[res.GenerationOf])) {
		return
	}
	was, _ := tree.Int(meta["generation"])
	meta["generation"] = was + 1
}

func specEqual(obj, old tree.Object) bool {
	return halfEqual(obj, old) && halfEqual(old, obj)
}

func halfEqual(a, b tree.Object) bool {
	for k, v := range a {
		switch k {
		case "metadata", "status", "kind", "apiVersion":
			continue
		}
		if w, ok := b[k]; !ok || !tree.Equal(v, w) {
			return false
		}
	}
	return true
}
