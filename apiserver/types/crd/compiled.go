package crd

import (
	"bytes"
	"container/list"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/schema"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Version is one version of a definition. It is safe for concurrent use.
type Version struct {
	definition *Definition
	document   *versionDocument
	resource   *kinds.Resource
	all        *compilations
	compiled   *compiled // that of the version before, if that has the same schema
}

// compiled is what versions of the same schema share, one after the other.
type compiled struct {
	bytes int        // that it takes, about
	mu    sync.Mutex // of the one that compiles
	now   atomic.Pointer[compilation]

	// Guarded by compilations.mu.
	place *list.Element // in the queue
	gone  bool          // the definition was replaced by one with another schema, or deleted
}

// Of returns the version that a resource was made of, or nil for a built-in one.
func Of(r *kinds.Resource) *Version {
	v, _ := r.Origin.(*Version)
	return v
}

// Definition that the version belongs to.
func (v *Version) Definition() *Definition { return v.definition }

// Resource is the version as it is served.
func (v *Version) Resource() *kinds.Resource { return v.resource }

// compilation is a schema in the forms that the library wants.
type compilation struct {
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
	status     validation.SchemaValidator // nil without a schema of it
	rules      *cel.Validator             // nil without rules
	model      *schema.Model
}

const (
	// maxCompilations is how many schemas are kept compiled.
	maxCompilations = 256
	// maxCompiled bounds what they take, in bytes by compiledBytes.
	maxCompiled = 256 << 20
	// A rule takes ruleBytes compiled, and each byte of a definition schemaFactor times as much.
	ruleBytes    = 64 << 10
	schemaFactor = 12
)

// compilations bounds what is compiled: when there are too many, the oldest is
// dropped and compiled again when it is needed. What is not served any more is dropped at once.
type compilations struct {
	mu    sync.Mutex
	queue list.List // of *compiled
	bytes int
}

// add keeps what was compiled.
func (c *compilations) add(x *compiled) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.gone {
		return // it goes with the requests that began before
	}
	x.place = c.queue.PushBack(x)
	c.bytes += x.bytes
	for c.queue.Len() > maxCompilations || c.bytes > maxCompiled && c.queue.Len() > 1 {
		c.drop(c.queue.Front().Value.(*compiled))
	}
}

// drop forgets what was compiled. mu is held.
func (c *compilations) drop(x *compiled) {
	if x.place == nil {
		return
	}
	c.queue.Remove(x.place)
	c.bytes -= x.bytes
	x.place = nil
	x.now.Store(nil)
}

// end drops what a version has compiled whose definition is not there any more, for good.
func (c *compilations) end(x *compiled) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x.gone = true
	c.drop(x)
}

// compiledBytes is about what a version of a stored definition takes when it is compiled. The other versions count as well.
func compiledBytes(stored []byte) int {
	return schemaFactor*len(stored) + ruleBytes*bytes.Count(stored, []byte(`"rule":`))
}

// Model is the version's schema as other packages use it. It is compiled on first
// use. Errors: what the stored schema is refused for, which validation rules out.
func (v *Version) Model() (*schema.Model, error) {
	c, err := v.compilation()
	if err != nil {
		return nil, err
	}
	return c.model, nil
}

func (v *Version) compilation() (*compilation, error) {
	x := v.compiled
	if c := x.now.Load(); c != nil {
		return c, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.now.Load(); c != nil {
		return c, nil
	}
	c, err := v.compile()
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", v.resource.GVK(), err)
	}
	x.now.Store(c)
	v.all.add(x)
	return c, nil
}

func (v *Version) compile() (*compilation, error) {
	props, err := v.schema()
	if err != nil {
		return nil, err
	}
	c := &compilation{}
	if c.structural, err = structuralschema.NewStructural(props); err != nil {
		return nil, err
	}
	// The defaults in it belong to props.
	c.structural = c.structural.DeepCopy()
	if err := defaulting.PruneDefaults(c.structural); err != nil {
		return nil, err
	}
	if c.validator, _, err = validation.NewSchemaValidator(props); err != nil {
		return nil, err
	}
	if status, ok := props.Properties["status"]; ok && v.resource.Subresource("status") != nil {
		if c.status, _, err = validation.NewSchemaValidator(&status); err != nil {
			return nil, err
		}
	}
	c.rules = cel.NewValidator(c.structural, true, celconfig.PerCallLimit)
	c.model = schema.NewModel(v.resource.Model, form{c})
	return c, nil
}

// schema reads the version's schema from what is stored.
func (v *Version) schema() (*apiextensions.JSONSchemaProps, error) {
	var doc struct {
		Spec struct {
			Versions []struct {
				Name   string                                    `json:"name"`
				Schema *apiextensionsv1.CustomResourceValidation `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(v.definition.Stored.Value(), &doc); err != nil {
		return nil, err
	}
	for _, x := range doc.Spec.Versions {
		if x.Name != v.document.Name || x.Schema == nil {
			continue
		}
		internal := &apiextensions.CustomResourceValidation{}
		if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(x.Schema, internal, nil); err != nil {
			return nil, err
		}
		if internal.OpenAPIV3Schema != nil {
			return internal.OpenAPIV3Schema, nil
		}
	}
	return nil, fmt.Errorf("version %s has no schema", v.document.Name)
}
