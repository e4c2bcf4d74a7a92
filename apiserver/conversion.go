package apiserver

import (
	"github.com/quorate/quorate/apiserver/schema"
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// normalize makes an object, in place, what it will be when it is read back: a
// version that is stored in another form leaves out, or adds, what only that says.
func (o *op) normalize(obj tree.Object) error {
	if o.res.Conversion == "" {
		return nil
	}
	stored, err := o.res.ToStored(obj)
	if err != nil {
		return err
	}
	shown, err := o.res.FromStored(stored)
	if err != nil {
		return err
	}
	for name, v := range shown {
		if name != "metadata" { // its holder has it, too
			obj[name] = v
		}
	}
	tree.CopyField(tree.As(obj["metadata"]), tree.As(shown["metadata"]), "annotations")
	return nil
}

// checkModel is what the schema says of an object: of what is sent, or of what
// that is stored as.
func (o *op) checkModel(model *schema.Model, obj tree.Object) (field.ErrorList, error) {
	if o.res.Conversion == "" {
		return model.Validate(obj), nil
	}
	stored, err := schema.Lookup(o.res.StorageModel)
	if err != nil {
		return nil, err
	}
	inner, err := o.res.ToStored(obj)
	if err != nil {
		return nil, err
	}
	return stored.Validate(inner), nil
}
