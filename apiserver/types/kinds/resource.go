// Package kinds describes resources as data. A Resource says everything the API
// needs to know about one resource in one version; built-in resources come from
// the embedded files in data/, custom resources from definitions (package crd).
// Handlers never switch on a kind's name.
//
// DESIGN.md says what the names that clients choose become.
package kinds

import (
	"slices"
	"strings"
	"sync"

	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is one resource in one group version. It is immutable once it is in
// a Registry.
type Resource struct {
	Group      string   `json:"group"`
	Version    string   `json:"version"`
	Kind       string   `json:"kind"`
	ListKind   string   `json:"listKind,omitempty"` // default Kind+"List"
	Plural     string   `json:"plural"`
	Singular   string   `json:"singular"`
	ShortNames []string `json:"shortNames,omitempty"`
	Categories []string `json:"categories,omitempty"`
	Namespaced bool     `json:"namespaced"`
	// FeatureGate has to be open for the resource to be served, whatever --runtime-config says.
	FeatureGate string `json:"featureGate,omitempty"`
	// Verbs in discovery's words: create delete deletecollection get list patch update watch.
	Verbs        []string      `json:"verbs"`
	Subresources []Subresource `json:"subresources,omitempty"`

	// Model is the name of the schema, for example io.k8s.api.apps.v1.Deployment.
	Model string `json:"model"`
	// Columns of server-side tables. Empty: Name and Age.
	Columns []Column `json:"columns,omitempty"`
	// Position is where the definition of a custom resource names the version.
	Position int `json:"-"`
	// SelectableFields beyond metadata.name and metadata.namespace.
	SelectableFields []SelectableField `json:"selectableFields,omitempty"`
	// NameRule is how metadata.name is validated.
	NameRule tree.NameRule `json:"nameRule,omitempty"` // default NameSubdomain

	// StorageVersion names the version whose form is stored, if it is another
	// one; Moves then lead from this version's fields to that one's. Without moves
	// the two have the same fields.
	StorageGroup   string `json:"storageGroup,omitempty"`
	StorageVersion string `json:"storageVersion,omitempty"`
	Moves          []Move `json:"moves,omitempty"`
	// Conversion names code that does what moves cannot (convert.go). What is written
	// is then also held to StorageModel, the stored version's; Columns are about that.
	Conversion   string `json:"conversion,omitempty"`
	StorageModel string `json:"storageModel,omitempty"`

	// Flags, closed set.
	UnconditionalUpdate bool   `json:"unconditionalUpdate,omitempty"` // PUT without resourceVersion is allowed
	CreateOnUpdate      bool   `json:"createOnUpdate,omitempty"`      // PUT creates what is absent
	StatusOnCreate      bool   `json:"statusOnCreate,omitempty"`      // a new object may come with its status (nodes)
	HasGeneration       bool   `json:"hasGeneration,omitempty"`       // metadata.generation begins with 1 and counts changes outside metadata and status
	GenerationOf        string `json:"generationOf,omitempty"`        // a field of the metadata whose changes it counts, too
	FirstGeneration     bool   `json:"firstGeneration,omitempty"`     // it begins with 1 and counts nothing (priority classes)
	SentGeneration      bool   `json:"sentGeneration,omitempty"`      // it begins with what a new object is sent with (CSI drivers)
	BaseIsName          bool   `json:"baseIsName,omitempty"`          // nothing is appended to a generateName (IP addresses)
	GracePeriod         bool   `json:"gracePeriod,omitempty"`         // deletion is graceful (pods)
	ReturnsDeleted      bool   `json:"returnsDeleted,omitempty"`      // DELETE answers with the object
	Expires             bool   `json:"expires,omitempty"`             // objects go some time after their last write (events)
	// Dependents is what a deletion does with them if neither its options nor the
	// object's finalizers say.
	Dependents DependentsRule `json:"dependents,omitempty"`
	// Virtual resources are not stored; a hook answers them (reviews).
	Virtual bool `json:"virtual,omitempty"`
	// Custom is set for resources from CustomResourceDefinitions: no protobuf,
	// no strategic merge, list items carry kind and apiVersion.
	Custom bool `json:"custom,omitempty"`
	// JSONOnly: no Go type of it is published, so it has no protobuf.
	JSONOnly bool `json:"jsonOnly,omitempty"`
	// Resets are the fields that writes of the object cannot set, besides a status that is a
	// subresource: dotted paths. So nobody owns them by such a write.
	Resets []string `json:"resets,omitempty"`

	// Deprecation is nil for versions that are here to stay. Built-in kinds have it
	// from their types.
	Deprecation *Deprecation `json:"-"`

	// Origin is what a custom resource was made of (package crd); nil for the others.
	Origin any `json:"-"`
	// StorageForm tells apart what objects are stored by, if that can change: a version's
	// name, a slash, and what its schema is. It is kept beside each object. One of another
	// form goes through Upgrade, in place, when it is read. Empty for built-in resources.
	StorageForm string                                      `json:"-"`
	Upgrade     func(form string, obj map[string]any) error `json:"-"`
	// SameFields says that forms differ by their schemas alone: all versions have the
	// same fields.
	SameFields bool `json:"-"`

	memo    sync.Map
	derived derived
}

// Memo is a place for what others work out from the resource: it lives as long as
// the resource does.
func (r *Resource) Memo() *sync.Map { return &r.memo }

// Subresource is a path below an object.
type Subresource struct {
	Name string `json:"name"` // status, scale, eviction, binding, ...
	// Kind, Group and Version of the body where they differ from the resource's.
	Kind    string   `json:"kind,omitempty"`
	Group   string   `json:"group,omitempty"`
	Version string   `json:"version,omitempty"`
	Model   string   `json:"model,omitempty"`
	Verbs   []string `json:"verbs"`
	// Resets are the fields that writes of the subresource cannot set: dotted paths; of a status,
	// besides the spec. So nobody owns them by such a write. What it says of metadata is not
	// taken: "metadata" is what upstream's ResetObjectMetaForStatus resets.
	Resets []string `json:"resets,omitempty"`
	// OwnsSent: who writes the subresource comes to own all in which the body differs from the
	// object, also what the write leaves as it is. Upstream has a filter for it that it does not use.
	OwnsSent bool `json:"ownsSent,omitempty"`
	// KeepsMetadata: nothing of what a write of the subresource says of metadata is taken.
	KeepsMetadata bool `json:"keepsMetadata,omitempty"`
	// Connects: it leads to a node or a Pod, and nothing of it is an object. Kind is that of its options.
	Connects bool `json:"connects,omitempty"`
	// Scale paths, as in CustomResourceSubresourceScale.
	SpecReplicas   string `json:"specReplicas,omitempty"`   // .spec.replicas
	StatusReplicas string `json:"statusReplicas,omitempty"` // .status.replicas
	Selector       string `json:"selector,omitempty"`       // .spec.selector or .status.selector
}

// Column of a server-side table. One of JSONPath and CEL is set.
type Column struct {
	Name        string `json:"name"`
	Type        string `json:"type"`             // string, integer, number, boolean, date
	Format      string `json:"format,omitempty"` // name for the first column
	Description string `json:"description,omitempty"`
	Priority    int32  `json:"priority,omitempty"` // 0 always, 1 with -o wide
	JSONPath    string `json:"jsonPath,omitempty"`
	// CEL is an expression over "self" (the object as a map) with optional
	// types, string extensions, and the functions of package printers, such as
	// age(timestamp) -> string. An expression of one function and one path,
	// age(self.metadata.creationTimestamp), sees null for an absent path.
	CEL string `json:"cel,omitempty"`
	// Default is the cell of an object without the field of JSONPath; nil
	// prints as <none> in kubectl.
	Default any `json:"default,omitempty"`
	// Typed columns of a JSONPath show nothing but values of their type, as those of
	// custom resources do.
	Typed bool `json:"-"`
}

// SelectableField can be used in field selectors.
type SelectableField struct {
	Path string `json:"path"` // as in the selector: status.phase
	// From is where the value is in the object: dotted paths separated by |,
	// of which the first that is not empty counts. Default: Path.
	From string `json:"from,omitempty"`
	// Attribute is the name under which the value is stored, if the table
	// belongs to another version that calls the field otherwise. Default: Path.
	Attribute string `json:"attribute,omitempty"`
	// Default is the value of an object without the field.
	Default string `json:"default,omitempty"`
	// Aliases are other names that selectors may have for it.
	Aliases []string `json:"aliases,omitempty"`
	// Unnamed says that selectors of this version cannot name it: it is stored for another version's.
	Unnamed bool `json:"unnamed,omitempty"`
}

// Named reports whether a selector may name the field so.
func (f *SelectableField) Named(path string) bool {
	return !f.Unnamed && f.Path == path || slices.Contains(f.Aliases, path)
}

// Move says that a field of this version is another one in the stored version.
type Move struct {
	From string `json:"from"` // dotted path in this version
	To   string `json:"to"`   // dotted path in the stored version
	// Empty is what the type of one version writes for an empty field, which the other's leaves out: a text
	// or a whole number. Nil: both do the same.
	Empty any `json:"empty,omitempty"`
	// EmptyIn is the version that writes it: EmptyInThis or EmptyInStored.
	EmptyIn string `json:"emptyIn,omitempty"`
}

// The values of Move.EmptyIn.
const (
	EmptyInThis   = "this"
	EmptyInStored = "stored"
)

// DependentsRule is what a deletion does with an object's dependents by default.
type DependentsRule string

const (
	DependentsDeleted     DependentsRule = ""            // they go later, in the background
	DependentsOrphaned    DependentsRule = "orphan"      // they stay and forget their owner
	DependentsUnsupported DependentsRule = "unsupported" // these objects are neither owners nor dependents
)

// GroupVersion of the resource.
func (r *Resource) GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: r.Group, Version: r.Version}
}

// GVK is the group, version and kind of objects.
func (r *Resource) GVK() schema.GroupVersionKind { return r.GroupVersion().WithKind(r.Kind) }

// GVR is the group, version and resource.
func (r *Resource) GVR() schema.GroupVersionResource { return r.GroupVersion().WithResource(r.Plural) }

// GroupResource is what error messages and RBAC name.
func (r *Resource) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Plural}
}

// ListKindName is ListKind or its default.
func (r *Resource) ListKindName() string {
	if r.ListKind != "" {
		return r.ListKind
	}
	return r.Kind + "List"
}

// Key of an object in the table: namespace/name, or name for cluster scope.
func (r *Resource) Key(namespace, name string) string {
	if r.Namespaced {
		return namespace + "/" + name
	}
	return name
}

// BeginsGeneration reports whether new objects get the generation 1, whatever they were sent with.
func (r *Resource) BeginsGeneration() bool {
	return r.FirstGeneration || r.HasGeneration && !r.SentGeneration
}

// IsStoredAs reports whether what is stored in a form is as the resource shows it.
func (r *Resource) IsStoredAs(form string) bool {
	if form == r.StorageForm || r.StorageForm == "" {
		return true
	}
	return r.SameFields && form[strings.IndexByte(form, '/')+1:] == r.StorageForm[strings.IndexByte(r.StorageForm, '/')+1:]
}

// HasProtobuf reports whether objects are spoken in protobuf.
func (r *Resource) HasProtobuf() bool { return !r.Custom && !r.JSONOnly }

// HasVerb reports whether the resource serves a verb.
func (r *Resource) HasVerb(verb string) bool {
	for _, v := range r.Verbs {
		if v == verb {
			return true
		}
	}
	return false
}

// Subresource returns the named subresource, or nil.
func (r *Resource) Subresource(name string) *Subresource {
	for i := range r.Subresources {
		if r.Subresources[i].Name == name {
			return &r.Subresources[i]
		}
	}
	return nil
}
