package schema

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"sync"
)

// shape says how a value is read. It is what a Go type would be upstream.
type shape uint8

const (
	shapeAny         shape = iota // anything: RawExtension, FieldsV1
	shapeStruct                   // an object with known fields
	shapeMap                      // an object with free keys and one type of value
	shapeList                     // an array
	shapeString                   // a string
	shapeBytes                    // a string of base64
	shapeTime                     // a time in RFC 3339, whole seconds
	shapeMicroTime                // a time in RFC 3339, microseconds
	shapeBool                     // true or false
	shapeInt32                    // an integer of 32 bits
	shapeInt64                    // an integer of 64 bits
	shapeFloat                    // any number
	shapeIntOrString              // an int32 or a string
	shapeQuantity                 // a resource.Quantity
)

// node is the compiled form of a model or of a part of it that has no name.
// Nodes of models are shared between all models that refer to them.
type node struct {
	shape  shape
	model  string               // the model's name; empty for lists, maps and scalars
	goType string               // as Go prints the type: v1.PodSpec, []string, int32
	fields map[string]*property // shapeStruct
	sorted []*property          // the same, by name
	elem   *node                // shapeList, shapeMap

	defaults *defaulting // what fills in absent fields of this very object
	deep     bool        // this node or one below it has defaults
	rounds   bool        // a map whose quantities are rounded up to thousandths
	embedded []embedding // fields that are never absent upstream, with defaults in them
	fills    []*property // fields that Fill has to look at, by name
	filled   bool        // there are any, here or below
	raw      bool        // this node, or one below it, is kept as the text that was sent (rawtext.go)
}

// property is one field of an object.
type property struct {
	name     string
	node     *node
	embedded bool // an object that is not a pointer upstream: never absent there
	written  writtenAs
	emptied  bool // written as null when it is empty
	managers bool // managedFields, which say something in the object's own metadata if they are empty, and nothing in those of a template
	value    any  // the schema's default, nil if there is none

	patchStrategies []string
	patchMergeKey   string
	listType        string
	listKeys        []string
}

// document is the part of an OpenAPI schema that compilation reads.
type document struct {
	Ref        string              `json:"$ref"`
	Type       string              `json:"type"`
	Format     string              `json:"format"`
	Properties map[string]document `json:"properties"`
	Additional *document           `json:"additionalProperties"`
	Items      *document           `json:"items"`
	Default    any                 `json:"default"`

	PatchStrategy string   `json:"x-kubernetes-patch-strategy"`
	PatchMergeKey string   `json:"x-kubernetes-patch-merge-key"`
	ListType      string   `json:"x-kubernetes-list-type"`
	ListMapKeys   []string `json:"x-kubernetes-list-map-keys"`
}

// definitions begins the names of the models within a CustomResourceDefinition.
const definitions = "io.k8s.apiextensions-apiserver."

// scalingRules is the model of a direction in which a HorizontalPodAutoscaler scales: the only one
// where upstream gives a list a default if it is nil, and not if it is empty.
const scalingRules = "io.k8s.api.autoscaling.v2.HPAScalingRules"

// noFields is the only model of a type without fields. The others whose schemas name none may have any.
const noFields = definitions + "pkg.apis.apiextensions.v1.CustomResourceSubresourceStatus"

const objectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

const refPrefix = "#/components/schemas/"

// named are the models whose JSON form is not what their schema's type says.
var named = map[string]shape{
	"io.k8s.apimachinery.pkg.util.intstr.IntOrString": shapeIntOrString,
	"io.k8s.apimachinery.pkg.api.resource.Quantity":   shapeQuantity,
	"io.k8s.apimachinery.pkg.apis.meta.v1.Time":       shapeTime,
	"io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime":  shapeMicroTime,
}

var (
	compiled  sync.Map   // model name -> *Model, complete ones only
	compileMu sync.Mutex // guards nodes and compilation
	nodes     = map[string]*node{}
)

// lookup compiles a model and everything that it refers to.
func lookup(name string) (*Model, error) {
	if m, ok := compiled.Load(name); ok {
		return m.(*Model), nil
	}
	compileMu.Lock()
	defer compileMu.Unlock()
	c := compiler{}
	root, err := c.model(name)
	if err != nil {
		for _, n := range c.fresh {
			delete(nodes, n.model) // half-made nodes must not be found again
		}
		return nil, fmt.Errorf("schema %s: %w", name, err)
	}
	c.summarize()
	m, _ := compiled.LoadOrStore(name, &Model{Name: name, root: root})
	return m.(*Model), nil
}

// compiler makes the nodes of one lookup. It runs under compileMu.
type compiler struct {
	fresh []*node // models first met in this lookup
}

// model returns the node of a named model. A model that refers to itself finds
// its own unfinished node.
func (c *compiler) model(name string) (*node, error) {
	if n, ok := nodes[name]; ok {
		return n, nil
	}
	raw, ok := Raw(name)
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrUnknownModel, name)
	}
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	n := &node{model: name, goType: goTypeOf(name)}
	nodes[name] = n
	c.fresh = append(c.fresh, n)
	if s, ok := named[name]; ok {
		n.shape = s
		if s == shapeIntOrString {
			n.goType = "int32" // what is no string is read as one
		}
		return n, nil
	}
	if err := c.fill(n, &d); err != nil {
		return nil, err
	}
	var err error
	n.defaults, err = defaultsOf(n)
	return n, err
}

// inline returns the node of a property's own schema.
func (c *compiler) inline(d *document) (*node, error) {
	if d.Ref != "" {
		return c.model(strings.TrimPrefix(d.Ref, refPrefix))
	}
	n := &node{}
	return n, c.fill(n, d)
}

// fill sets a node's shape and children.
func (c *compiler) fill(n *node, d *document) error {
	switch d.Type {
	case "object":
		return c.object(n, d)
	case "array":
		elem, err := c.inline(d.Items)
		if err != nil {
			return err
		}
		n.shape, n.elem = shapeList, elem
		n.goType = "[]" + elem.goType
	case "string":
		n.shape, n.goType = shapeString, "string"
		switch d.Format {
		case "byte":
			n.shape, n.goType = shapeBytes, "[]uint8"
		case "date-time":
			n.shape, n.goType = shapeTime, "v1.Time"
		}
	case "boolean":
		n.shape, n.goType = shapeBool, "bool"
	case "integer":
		n.shape, n.goType = shapeInt64, "int64"
		if d.Format == "int32" {
			n.shape, n.goType = shapeInt32, "int32"
		}
	case "number":
		n.shape, n.goType = shapeFloat, "float64"
	case "":
		n.shape = shapeAny
	default:
		return fmt.Errorf("unknown type %q", d.Type)
	}
	return nil
}

func (c *compiler) object(n *node, d *document) error {
	if d.Additional != nil {
		elem, err := c.inline(d.Additional)
		if err != nil {
			return err
		}
		n.shape, n.elem = shapeMap, elem
		n.goType = "map[string]" + elem.goType
		return nil
	}
	if len(d.Properties) == 0 && n.model != noFields {
		n.shape = shapeAny
		return nil
	}
	n.shape = shapeStruct
	n.fields = make(map[string]*property, len(d.Properties))
	for name, p := range d.Properties {
		child, err := c.inline(&p)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		f := &property{
			name: name, node: child,
			patchMergeKey: p.PatchMergeKey, listType: p.ListType, listKeys: p.ListMapKeys,
		}
		_, f.embedded = p.Default.(map[string]any)
		f.written = writtenFields()[n.model][name]
		if n.model == scalingRules && name == "policies" {
			f.written = writtenNot // an empty list is refused; the default is for none
		}
		f.managers = name == "managedFields" && n.model == objectMeta
		f.value = scalar(p.Default)
		if isZero(f.value) && !f.pointer() {
			f.value = nil // it only says that the field is no pointer
		}
		if child.shape == shapeMap && child.elem.shape == shapeQuantity {
			child.rounds = strings.HasPrefix(n.model, coreModels) && n.model != claimStatuses
		}
		// An empty object is not absent, and an empty string or 0 behind a pointer is not either.
		// Upstream stores definitions in JSON, which knows an empty list; its other form does not.
		list := child.shape == shapeList || child.shape == shapeMap
		f.emptied = list && f.written == writtenNull && !strings.HasPrefix(n.model, definitions)
		if p.PatchStrategy != "" {
			f.patchStrategies = strings.Split(p.PatchStrategy, ",")
		}
		n.fields[name] = f
		n.sorted = append(n.sorted, f)
	}
	sort.Slice(n.sorted, func(i, j int) bool { return n.sorted[i].name < n.sorted[j].name })
	return nil
}

// summarize works out which of the fresh nodes have defaults, parts that are
// always written or parts that are kept as texts somewhere below them, so that a walk can leave out whole subtrees. Models may refer to
// each other in circles, so it repeats until nothing changes.
func (c *compiler) summarize() {
	for changed := true; changed; {
		changed = false
		for _, n := range c.fresh {
			if n.summarize() {
				changed = true
			}
		}
	}
}

// summarize is the step of one node; changed says that its parents are to look again.
func (n *node) summarize() (changed bool) {
	deep, filled, raw := n.deep || n.defaults != nil, n.filled, n.raw || n.model == rawModel
	var fills []*property
	var embedded []embedding
	for _, f := range n.sorted {
		d, w := f.node.below()
		if d && f.embedded && f.node.shape == shapeStruct {
			embedded = append(embedded, embedding{f.name, n.defaults.reaches(f.name)})
		}
		if w = w || f.written == writtenZero || f.written == writtenNull; w {
			fills = append(fills, f)
		}
		deep, filled, raw = deep || d, filled || w, raw || f.node.raw
	}
	if n.elem != nil {
		d, w := n.elem.below()
		deep, filled, raw = deep || d || n.rounds, filled || w, raw || n.elem.raw
	}
	changed = deep != n.deep || filled != n.filled || raw != n.raw // which is all that parents look at
	n.deep, n.fills, n.embedded, n.filled, n.raw = deep, fills, embedded, filled, raw
	return changed
}

// below is what a parent has of n. Nameless nodes are summarized on the way: they belong to
// one parent only.
func (n *node) below() (deep, filled bool) {
	if n.model == "" {
		n.summarize()
	}
	return n.deep, n.filled
}

// scalar is a default that is a text, a number or a bool; nil for others.
func scalar(v any) any {
	switch x := v.(type) {
	case string, bool:
		return x
	case float64:
		return int64(x)
	}
	return nil
}

// pointer reports whether a field that is no list or map is a pointer upstream: only then is its zero a value.
func (f *property) pointer() bool { return f.written == writtenNot || f.written == writtenNull }

// Models of upstream's core group know a list of resources, which is rounded; this one of them has another map of quantities.
const (
	coreModels    = "io.k8s.api.core.v1."
	claimStatuses = coreModels + "NodeAllocatableResourceClaimStatus"
)

// goTypeOf turns io.k8s.api.core.v1.PodSpec into v1.PodSpec.
func goTypeOf(model string) string {
	i := strings.LastIndexByte(model, '.')
	j := strings.LastIndexByte(model[:i], '.')
	return model[j+1:]
}

// structName turns io.k8s.api.core.v1.PodSpec into PodSpec.
func (n *node) structName() string { return n.model[strings.LastIndexByte(n.model, '.')+1:] }
