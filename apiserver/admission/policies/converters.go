package policies

import (
	"context"

	"github.com/quorate/quorate/apiserver/admission/upstream"
	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/fieldmanager"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
)

// converters merge objects of all kinds by their schemas. What is made of a schema is kept with
// its resource.
type converters struct{ kinds *upstream.Kinds }

var _ patch.TypeConverterManager = converters{}

// converterKey is the converter among what is kept with a resource.
type converterKey struct{}

// GetTypeConverter returns the converter of a kind, nil if its group and version are not served or it has no schema that
// can be merged by. One of a kind that is no resource's own knows what its subresources say: a kind that has no model
// there, as the options of exec, can be patched, but not applied to.
func (c converters) GetTypeConverter(gvk schema.GroupVersionKind) managedfields.TypeConverter {
	res := c.kinds.Resource(gvk)
	if res == nil {
		return c.ofSubresource(gvk)
	}
	if made, ok := res.Memo().Load(converterKey{}); ok {
		return made.(managedfields.TypeConverter)
	}
	version := fieldmanager.Version{GVK: gvk, Model: res.Model}
	if own := crd.Of(res); own != nil {
		var err error
		if version.Schema, err = own.Schema(false); err != nil {
			return nil
		}
	}
	made, err := fieldmanager.TypeConverter(version)
	if err != nil {
		return nil
	}
	kept, _ := res.Memo().LoadOrStore(converterKey{}, made)
	return kept.(managedfields.TypeConverter)
}

func (c converters) ofSubresource(gvk schema.GroupVersionKind) managedfields.TypeConverter {
	var versions []fieldmanager.Version
	if model, err := c.kinds.ModelOf(gvk); err == nil {
		versions = append(versions, fieldmanager.Version{GVK: gvk, Model: model.Name})
	} else if !c.kinds.Registry().HasGroupVersion(gvk.GroupVersion()) {
		return nil
	}
	made, err := fieldmanager.TypeConverter(versions...)
	if err != nil {
		return nil
	}
	return made
}

// Run has nothing to do: nothing is fetched.
func (converters) Run(context.Context) {}
