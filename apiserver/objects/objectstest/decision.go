package objectstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// parsed reads an object as YAML.
func parsed(text string) (obj tree.Object, err error) {
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = utiljson.Unmarshal(raw, &obj)
	}
	return obj, err
}

func inJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// has puts an object into the store, without a question whether it may be there.
func (c *Case) has(rest string) error {
	table, text, _ := strings.Cut(rest, " ")
	obj, err := parsed(text)
	if err != nil {
		return err
	}
	meta := tree.As(obj["metadata"])
	w := &proto.Write{Table: table, Key: tree.Text(meta, "name"), Op: proto.Op_OP_PUT, Value: []byte(inJSON(obj))}
	if ns := tree.Text(meta, "namespace"); ns != "" {
		w.Key = ns + "/" + w.Key
	}
	for name, value := range tree.As(meta["labels"]) {
		w.Labels = append(w.Labels, &proto.Attribute{Name: name, Value: value.(string)})
	}
	_, err = c.Memory.Propose(c.t.Context(), w)
	return err
}

// admit asks the plugin of the options about a write. What comes of it is the object that the
// plugin leaves.
func (c *Case) admit(rest string) error {
	operation, rest, _ := strings.Cut(rest, " ")
	resource, text, _ := strings.Cut(rest, " ")
	resource, sub, _ := strings.Cut(resource, "/")
	obj, err := parsed(text)
	if err != nil {
		return err
	}
	meta := tree.As(obj["metadata"])
	a := &admission.Attributes{
		Operation: admission.Operation(strings.ToUpper(operation)), Subresource: sub, Old: c.old,
		Namespace: tree.Text(meta, "namespace"), Name: tree.Text(meta, "name"),
	}
	all, err := kinds.Available()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all.All(), func(r *kinds.Resource) bool { return r.GroupResource().String() == resource })
	if i < 0 {
		return fmt.Errorf("there is no resource %s", resource)
	}
	a.Resource = all.All()[i].GVR()
	a.Kind = all.KindFor(a.Resource, sub)
	if a.Operation == admission.Delete {
		a.Old = obj
	} else {
		a.Object = maps.Clone(obj)
		if meta != nil {
			a.Object["metadata"] = maps.Clone(meta)
		}
	}
	before, old := inJSON(obj), inJSON(c.old)
	err = c.ask(a)
	if inJSON(obj) != before || inJSON(c.old) != old {
		return errors.New("below its first level the object was changed, and not replaced")
	}
	c.outcome, c.object, c.old, c.fields, c.warnings, c.err, c.expected = "unchanged", obj, nil, nil, nil, err, err == nil
	switch {
	case err != nil:
		c.object = nil
	case a.Object != nil && !reflect.DeepEqual(a.Object, obj):
		c.outcome, c.object = "changed", a.Object
		if again, err := parsed(inJSON(a.Object)); err != nil || !reflect.DeepEqual(again, a.Object) {
			return fmt.Errorf("the object has values that no decoder makes: %#v", a.Object)
		}
	}
	return nil
}

// ask asks the plugin to admit, and to validate what has come of that.
func (c *Case) ask(a *admission.Attributes) error {
	p := c.options.Plugin(c.lag)
	if !p.Handles(a) {
		return nil
	}
	if m, ok := p.(admission.Mutator); ok {
		if err := m.Admit(c.t.Context(), a); err != nil {
			return err
		}
	}
	if v, ok := p.(admission.Validator); ok {
		return v.Validate(c.t.Context(), a)
	}
	return nil
}
