package schema

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// patchMeta answers strategicpatch's questions from compiled nodes: how a field
// is merged, and what is below it. A nil node is below a free-form field.
type patchMeta struct{ node *node }

var _ strategicpatch.LookupPatchMeta = patchMeta{}

// LookupPatchMetadataForStruct implements strategicpatch.LookupPatchMeta.
func (p patchMeta) LookupPatchMetadataForStruct(key string) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	child, meta, err := p.child(key)
	return patchMeta{node: child}, meta, err
}

// LookupPatchMetadataForSlice implements strategicpatch.LookupPatchMeta. What
// it returns is about the items.
func (p patchMeta) LookupPatchMetadataForSlice(key string) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	child, meta, err := p.child(key)
	if err != nil || child == nil {
		return patchMeta{}, meta, err
	}
	if child.shape != shapeList {
		return nil, meta, fmt.Errorf("expected slice or array type, but got: %s", patchMeta{node: child}.Name())
	}
	return patchMeta{node: child.elem}, meta, nil
}

func (p patchMeta) child(key string) (*node, strategicpatch.PatchMeta, error) {
	var meta strategicpatch.PatchMeta
	switch {
	case p.node == nil || p.node.shape == shapeAny:
		return nil, meta, nil
	case p.node.shape == shapeMap:
		return p.node.elem, meta, nil
	}
	f := p.node.fields[key]
	if f == nil {
		return nil, meta, fmt.Errorf("unable to find api field %q in %s", key, p.Name())
	}
	meta.SetPatchMergeKey(f.patchMergeKey)
	meta.SetPatchStrategies(f.patchStrategies)
	return f.node, meta, nil
}

// Name implements strategicpatch.LookupPatchMeta.
func (p patchMeta) Name() string {
	switch {
	case p.node == nil:
		return "any"
	case p.node.model != "":
		return p.node.structName()
	default:
		return p.node.goType
	}
}
