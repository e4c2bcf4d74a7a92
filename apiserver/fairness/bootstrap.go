package fairness

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"

	v1 "k8s.io/api/flowcontrol/v1"
	"sigs.k8s.io/yaml"
)

// The objects that every cluster has, as upstream's.
//
//go:embed bootstrap.yaml
var bootstrapYAML []byte

// AutoUpdate is the annotation by which an object says whether the server keeps
// its spec.
const AutoUpdate = v1.AutoUpdateAnnotationKey

// Bootstrap is what every cluster has from the start.
type Bootstrap struct {
	Levels  []Initial `json:"levels"`
	Schemas []Initial `json:"schemas"`
}

// Initial is one object. A mandatory one is always kept as it is here, a suggested
// one only as long as its annotation or its generation says that nobody has
// changed it.
type Initial struct {
	Name      string         `json:"name"`
	Mandatory bool           `json:"mandatory,omitempty"`
	Spec      map[string]any `json:"spec"`
}

// Objects returns the initial objects; nobody may change them.
var Objects = sync.OnceValue(func() *Bootstrap {
	b := &Bootstrap{}
	if err := yaml.UnmarshalStrict(bootstrapYAML, b); err != nil {
		panic(err) // embedded, and read by a test
	}
	return b
})

var mandatoryLevels = sync.OnceValue(func() (out []*v1.PriorityLevelConfiguration) {
	for _, i := range Objects().Levels {
		if i.Mandatory {
			p := &v1.PriorityLevelConfiguration{}
			p.Name = i.Name
			i.into(&p.Spec)
			out = append(out, p)
		}
	}
	return out
})

var mandatorySchemas = sync.OnceValue(func() (out []*v1.FlowSchema) {
	for _, i := range Objects().Schemas {
		if i.Mandatory {
			f := &v1.FlowSchema{}
			f.Name = i.Name
			i.into(&f.Spec)
			out = append(out, f)
		}
	}
	return out
})

func (i Initial) into(spec any) {
	b, err := json.Marshal(i.Spec)
	if err == nil {
		err = json.Unmarshal(b, spec)
	}
	if err != nil {
		panic(fmt.Sprintf("%s: %v", i.Name, err)) // embedded, and read by a test
	}
}
