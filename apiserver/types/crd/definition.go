package crd

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"

	"github.com/quorate/quorate/apiserver/types/conversion"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/raftstore/mvcc"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/version"
)

// Table is where definitions are stored.
const Table = "customresourcedefinitions.apiextensions.k8s.io"

// Definition is a stored CustomResourceDefinition without its schemas. It is
// immutable and safe for concurrent use.
type Definition struct {
	// Stored is the version that it was read from.
	Stored *mvcc.Version

	document
	versions []*Version
	webhook  *conversion.Webhook
	// named says that the accepted names are those that are wanted, and that a condition
	// says so.
	named bool
	// sound says that the resources are called like the definition. Anyone who may write
	// the status could call them otherwise, and have another definition's objects.
	sound bool
	// serving is what the resources are made of, in short.
	serving [sha256.Size]byte
	// ended is closed when the registry has another definition in its place, or none.
	ended chan struct{}
}

// document is the part of a definition that serving and naming need. Schemas are
// only looked at to tell one from another.
type document struct {
	Metadata struct {
		Name              string            `json:"name"`
		Annotations       map[string]string `json:"annotations"`
		Finalizers        []string          `json:"finalizers"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Group    string                                      `json:"group"`
		Scope    apiextensions.ResourceScope                 `json:"scope"`
		Names    apiextensions.CustomResourceDefinitionNames `json:"names"`
		Versions []versionDocument                           `json:"versions"`
		// Conversion is only looked at when the definition is read.
		Conversion *apiextensions.CustomResourceConversion `json:"conversion"`
	} `json:"spec"`
	Status apiextensions.CustomResourceDefinitionStatus `json:"status"`
}

type versionDocument struct {
	Name               string                                         `json:"name"`
	Served             bool                                           `json:"served"`
	Storage            bool                                           `json:"storage"`
	Deprecated         bool                                           `json:"deprecated"`
	DeprecationWarning *string                                        `json:"deprecationWarning"`
	Schema             json.RawMessage                                `json:"schema"`
	Subresources       *apiextensions.CustomResourceSubresources      `json:"subresources"`
	Columns            []apiextensions.CustomResourceColumnDefinition `json:"additionalPrinterColumns"`
	SelectableFields   []apiextensions.SelectableField                `json:"selectableFields"`
}

// read makes a Definition of what is stored.
func read(v *mvcc.Version, all *compilations) (*Definition, error) {
	d := &Definition{Stored: v, ended: make(chan struct{})}
	if err := json.Unmarshal(v.Value(), &d.document); err != nil {
		return nil, fmt.Errorf("read definition %s: %w", v.Key, err)
	}
	served, err := json.Marshal([]any{&d.Spec, &d.Status.AcceptedNames})
	if err != nil {
		return nil, fmt.Errorf("read definition %s: %w", v.Key, err)
	}
	d.serving = sha256.Sum256(served)
	d.named = reflect.DeepEqual(d.Spec.Names, d.Status.AcceptedNames) &&
		apihelpers.FindCRDCondition(holder(&d.Status), apiextensions.NamesAccepted) != nil
	d.sound = d.Spec.Group != "" && d.Status.AcceptedNames.Plural == d.Spec.Names.Plural &&
		len(validation.IsDNS1035Label(d.Spec.Names.Plural)) == 0 && v.Key == d.Spec.Names.Plural+"."+d.Spec.Group
	d.webhook = conversion.Of(d.Metadata.Name, d.Spec.Conversion)
	d.Spec.Conversion = nil
	size := compiledBytes(v.Value())
	for i := range d.Spec.Versions {
		doc := &d.Spec.Versions[i]
		made := &Version{definition: d, document: doc, all: all, compiled: &compiled{bytes: size}}
		made.resource = d.resource(made, doc)
		d.versions = append(d.versions, made)
		doc.Schema = nil // read again when it is compiled
	}
	return d, nil
}

// condition reports whether a condition is true.
func (d *Definition) condition(t apiextensions.CustomResourceDefinitionConditionType) bool {
	for i := range d.Status.Conditions {
		if c := &d.Status.Conditions[i]; c.Type == t {
			return c.Status == apiextensions.ConditionTrue
		}
	}
	return false
}

// Established reports whether the definition's resources are served.
func (d *Definition) Established() bool { return d.condition(apiextensions.Established) }

// Terminating reports whether the definition is being deleted.
func (d *Definition) Terminating() bool { return d.Metadata.DeletionTimestamp != "" }

// Resources are the versions as they are served, none before the definition is
// established, and none in a group version that is built in: as upstream, which looks
// for custom resources where it has nothing of its own.
func (d *Definition) Resources() []*kinds.Resource {
	if !d.Established() || !d.sound {
		return nil
	}
	var out []*kinds.Resource
	for _, v := range d.versions {
		if v.document.Served && !kinds.IsBuiltinVersion(v.resource.GroupVersion()) {
			out = append(out, v.resource)
		}
	}
	return out
}

// Storage is the resource in the version that is stored, served or not; nil if
// there is none, or if it is not called like the definition and its objects are
// therefore not known to be the definition's.
func (d *Definition) Storage() *kinds.Resource {
	if v := d.StorageVersion(); v != nil && d.sound {
		return v.resource
	}
	return nil
}

// Same reports whether two resources of a registry's past and present are served in
// the same way: built-in ones, or those of a definition of which at most the status
// and the metadata have changed.
func Same(a, b *kinds.Resource) bool {
	x, y := Of(a), Of(b)
	if a == b || x == nil || y == nil {
		return a == b
	}
	return x.definition.serving == y.definition.serving
}

// Ended is closed when the registry that a custom resource is of has learned that it is
// served no more, or in another way; nil for built-in ones.
func Ended(r *kinds.Resource) <-chan struct{} {
	if v := Of(r); v != nil {
		return v.definition.ended
	}
	return nil
}

// succeed makes d the definition in the place of one that was there before.
func (d *Definition) succeed(before *Definition) {
	if before.serving == d.serving && before.ended != nil {
		d.ended = before.ended
		for i, v := range before.versions {
			d.versions[i].compiled = v.compiled // nobody has d yet
		}
		return
	}
	before.end()
}

// end ends a definition that was replaced or deleted.
func (d *Definition) end() {
	for _, v := range d.versions {
		v.all.end(v.compiled)
	}
	if d.ended != nil {
		close(d.ended)
	}
}

// StorageVersion is the version that objects are stored in; nil if there is none.
func (d *Definition) StorageVersion() *Version {
	for _, v := range d.versions {
		if v.document.Storage {
			return v
		}
	}
	return nil
}

// Webhook converts the definition's objects between its versions; nil if they all have
// the same fields.
func (d *Definition) Webhook() *conversion.Webhook { return d.webhook }

// StoredIn is the version that an object is stored in which has a form beside it.
// Errors: it is none of the definition's any more.
func (d *Definition) StoredIn(form string) (*Version, error) {
	name, _, named := strings.Cut(form, "/")
	if !named {
		// Written before forms had a version, when all versions had the same fields.
		if v := d.StorageVersion(); v != nil {
			return v, nil
		}
	}
	for _, v := range d.versions {
		if v.document.Name == name {
			return v, nil
		}
	}
	return nil, fmt.Errorf("request to convert CR from an invalid group/version: %s/%s", d.Spec.Group, name)
}

func (d *Definition) storageVersion() string {
	for i := range d.Spec.Versions {
		if d.Spec.Versions[i].Storage {
			return d.Spec.Versions[i].Name
		}
	}
	return ""
}

// resource is one version as package kinds wants it. The names are the accepted
// ones: they may lag behind the wanted ones.
func (d *Definition) resource(v *Version, doc *versionDocument) *kinds.Resource {
	names := &d.Status.AcceptedNames
	r := &kinds.Resource{
		Group: d.Spec.Group, Version: doc.Name, Kind: names.Kind, ListKind: names.ListKind,
		Plural: names.Plural, Singular: names.Singular, ShortNames: names.ShortNames, Categories: names.Categories,
		Namespaced: d.Spec.Scope == apiextensions.NamespaceScoped, Verbs: kinds.AllVerbs, HasGeneration: true, Custom: true,
		Model:   modelName(d.Spec.Group, doc.Name, names.Kind),
		Columns: columns(doc.Columns), SelectableFields: selectable(doc.SelectableFields),
		Origin: v, StorageForm: doc.Name + "/" + fingerprint(doc.Schema), SameFields: d.webhook == nil, Upgrade: v.upgrade,
	}
	for i := range d.Spec.Versions {
		if d.Spec.Versions[i].Name == doc.Name {
			r.Position = i
		}
	}
	if s := d.storageVersion(); s != doc.Name {
		r.StorageGroup, r.StorageVersion = d.Spec.Group, s
	}
	if doc.Deprecated {
		r.Deprecation = &kinds.Deprecation{Warning: d.deprecation(doc)}
	}
	if s := doc.Subresources; s != nil && s.Status != nil {
		r.Subresources = append(r.Subresources, kinds.Subresource{Name: "status", Verbs: []string{"get", "patch", "update"}})
	}
	if s := doc.Subresources; s != nil && s.Scale != nil {
		scale := kinds.Subresource{
			Name: "scale", Group: "autoscaling", Version: "v1", Kind: "Scale", Model: "io.k8s.api.autoscaling.v1.Scale",
			Verbs: []string{"get", "patch", "update"}, SpecReplicas: s.Scale.SpecReplicasPath, StatusReplicas: s.Scale.StatusReplicasPath,
		}
		if s.Scale.LabelSelectorPath != nil {
			scale.Selector = *s.Scale.LabelSelectorPath
		}
		r.Subresources = append(r.Subresources, scale)
	}
	return r
}

// fingerprint tells schemas apart: objects that were written under another one are
// pruned and defaulted again when they are read.
func fingerprint(schema []byte) string {
	sum := sha256.Sum256(schema)
	return hex.EncodeToString(sum[:8])
}

// modelName is upstream's name of a custom resource's schema in OpenAPI. The names of
// the types that are built in are not to be had: by "io.k8s.api.core.v1.Pod" clients
// would look at Pods.
func modelName(group, version, kind string) string {
	parts := strings.Split(group, ".")
	slices.Reverse(parts)
	name := strings.Join(parts, ".") + "." + version + "." + kind
	for _, module := range [...]string{"io.k8s.api.", "io.k8s.apimachinery.", "io.k8s.apiextensions-apiserver."} {
		if strings.HasPrefix(name, module) {
			return "custom." + name
		}
	}
	return name
}

func selectable(in []apiextensions.SelectableField) []kinds.SelectableField {
	var out []kinds.SelectableField
	for _, f := range in {
		out = append(out, kinds.SelectableField{Path: strings.TrimPrefix(f.JSONPath, ".")})
	}
	return out
}

var metadataDescriptions = metav1.ObjectMeta{}.SwaggerDoc()

// columns are those that a table has for a definition's: the name first, and the
// age if it asks for none.
func columns(in []apiextensions.CustomResourceColumnDefinition) []kinds.Column {
	out := []kinds.Column{{Name: "Name", Type: "string", Format: "name", Description: metadataDescriptions["name"], JSONPath: ".metadata.name", Typed: true}}
	if len(in) == 0 {
		in = []apiextensions.CustomResourceColumnDefinition{{
			Name: "Age", Type: "date", Description: metadataDescriptions["creationTimestamp"], JSONPath: ".metadata.creationTimestamp",
		}}
	}
	for _, c := range in {
		description := c.Description
		if description == "" {
			description = "Custom resource definition column (in JSONPath format): " + c.JSONPath
		}
		out = append(out, kinds.Column{
			Name: c.Name, Type: c.Type, Format: c.Format, Description: description, Priority: c.Priority, JSONPath: c.JSONPath, Typed: true,
		})
	}
	return out
}

// deprecation is what clients of a deprecated version are told.
func (d *Definition) deprecation(doc *versionDocument) string {
	if doc.DeprecationWarning != nil {
		return *doc.DeprecationWarning
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", d.Spec.Group, doc.Name, d.Spec.Names.Kind)
	var newer []string
	for _, v := range d.Spec.Versions {
		if v.Served && !v.Deprecated && version.CompareKubeAwareVersionStrings(doc.Name, v.Name) < 0 {
			newer = append(newer, v.Name)
		}
	}
	if len(newer) == 0 {
		return text
	}
	sort.Slice(newer, func(i, j int) bool { return version.CompareKubeAwareVersionStrings(newer[i], newer[j]) > 0 })
	return text + fmt.Sprintf("; use %s/%s %s", d.Spec.Group, newer[0], d.Spec.Names.Kind)
}
