package openapi

import (
	"strings"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// operation is one method of one path, before it takes the form of a v2 or v3
// document.
type operation struct {
	path, method string
	id, tag      string
	description  string
	action       string // x-kubernetes-action
	gvk          schema.GroupVersionKind
	params       []param
	body         string // model, empty for none
	bodyRequired bool
	consumes     []string
	produces     []string
	responses    []response
	noPretty     bool // nothing of the answer can be printed
}

type response struct{ code, description, model string }

// plainText stands for a model where an answer has none.
const plainText = "string"

const (
	modelDeleteOptions = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
	modelStatus        = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"
	modelPatch         = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch"
	modelWatchEvent    = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent"
	modelResourceList  = "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList"
)

const (
	typeJSON     = "application/json"
	typeYAML     = "application/yaml"
	typeProtobuf = "application/vnd.kubernetes.protobuf"
	watchSuffix  = ";stream=watch"
)

var (
	// Patches of built-in resources; custom ones have no strategic merge.
	patchTypes       = []string{"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"}
	customPatchTypes = []string{"application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"}
)

// generator makes the operations of one resource.
type generator struct {
	r        *kinds.Resource
	prefix   string // /api/v1 or /apis/G/V
	group    string // AppsV1, CoreV1
	tag      string // apps_v1, core_v1
	list     string // model of the list
	produces []string
	ops      []operation
}

// operations are those of a resource and its subresources.
func operations(r *kinds.Resource) []operation {
	g := &generator{r: r, prefix: prefixOf(r.Group, r.Version), list: listModel(r), produces: []string{typeJSON, typeYAML, typeProtobuf}}
	if !r.HasProtobuf() {
		g.produces = []string{typeJSON, typeYAML}
	}
	title, tag := groupName(r.Group)
	g.group, g.tag = title+strings.ToUpper(r.Version[:1])+r.Version[1:], tag+"_"+r.Version
	g.collection()
	g.object()
	for i := range r.Subresources {
		if r.Subresources[i].Connects {
			g.connections(&r.Subresources[i])
			continue
		}
		g.subresource(&r.Subresources[i])
	}
	return g.ops
}

// resourceListOperation is the discovery of a group version, at its own path.
func resourceListOperation(gv schema.GroupVersion) operation {
	title, tag := groupName(gv.Group)
	return operation{
		path: prefixOf(gv.Group, gv.Version) + "/", method: "get", tag: tag + "_" + gv.Version,
		id:          "get" + title + strings.ToUpper(gv.Version[:1]) + gv.Version[1:] + "APIResources",
		description: "get available resources",
		produces:    []string{typeJSON, typeYAML, typeProtobuf},
		responses:   []response{{"200", "OK", modelResourceList}, {code: "401", description: "Unauthorized"}},
	}
}

func prefixOf(group, version string) string {
	if group == "" {
		return "/api/" + version
	}
	return "/apis/" + group + "/" + version
}

// listModel is the model of lists, in the package of the object's model.
func listModel(r *kinds.Resource) string {
	return r.Model[:strings.LastIndexByte(r.Model, '.')+1] + r.ListKindName()
}

// groupName is a group in operation ids (RbacAuthorization) and tags
// (rbacAuthorization).
func groupName(group string) (title, tag string) {
	if group == "" {
		return "Core", "core"
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(group, ".k8s.io"), ".") {
		var b strings.Builder
		for word := range strings.SplitSeq(part, "-") {
			if word != "" {
				b.WriteString(strings.ToUpper(word[:1]) + word[1:])
			}
		}
		title += b.String()
	}
	if title == "" {
		return "Group", "group"
	}
	return title, strings.ToLower(title[:1]) + title[1:]
}

// scoped is the kind in operation ids: NamespacedPod, Node.
func (g *generator) scoped() string {
	if g.r.Namespaced {
		return "Namespaced" + g.r.Kind
	}
	return g.r.Kind
}

func (g *generator) base() string {
	if g.r.Namespaced {
		return g.prefix + "/namespaces/{namespace}/" + g.r.Plural
	}
	return g.prefix + "/" + g.r.Plural
}

func (g *generator) add(o operation) {
	o.tag = g.tag
	if o.gvk.Kind == "" {
		o.gvk = g.r.GVK()
	}
	if o.produces == nil {
		o.produces = g.produces
	}
	if strings.Contains(o.path, "{namespace}") {
		o.params = append([]param{paramNamespace}, o.params...)
	}
	if strings.Contains(o.path, "{name}") {
		o.params = append([]param{paramName}, o.params...)
	}
	if !o.noPretty {
		o.params = append(o.params, paramPretty)
	}
	o.responses = append(o.responses, response{code: "401", description: "Unauthorized"})
	g.ops = append(g.ops, o)
}

// streams are the types of a list, which a watch of the same path may have too.
func (g *generator) streams() []string {
	out := append([]string(nil), g.produces...)
	out = append(out, typeJSON+watchSuffix)
	if g.r.HasProtobuf() {
		out = append(out, typeProtobuf+watchSuffix)
	}
	return out
}

func (g *generator) collection() {
	r, base := g.r, g.base()
	ok := func(model string) []response { return []response{{"200", "OK", model}} }
	if r.HasVerb("list") {
		list := operation{path: base, method: "get", id: "list" + g.group + g.scoped(), action: "list",
			description: "list or watch objects of kind " + r.Kind, params: listParams, produces: g.streams(), responses: ok(g.list)}
		g.add(list)
		if r.Namespaced {
			list.path, list.id = g.prefix+"/"+r.Plural, "list"+g.group+r.Kind+"ForAllNamespaces"
			g.add(list)
		}
	}
	if r.HasVerb("create") {
		g.add(operation{path: base, method: "post", id: "create" + g.group + g.scoped(), action: "post",
			description: "create " + r.Kind, params: writeParams, body: r.Model, bodyRequired: true,
			responses: []response{{"200", "OK", r.Model}, {"201", "Created", r.Model}, {"202", "Accepted", r.Model}}})
	}
	if r.HasVerb("deletecollection") {
		g.add(operation{path: base, method: "delete", id: "delete" + g.group + "Collection" + g.scoped(), action: "deletecollection",
			description: "delete collection of " + r.Kind, params: deleteCollectionParams, body: modelDeleteOptions, responses: ok(modelStatus)})
	}
}

func (g *generator) object() {
	r, path := g.r, g.base()+"/{name}"
	if r.HasVerb("get") {
		g.add(operation{path: path, method: "get", id: "read" + g.group + g.scoped(), action: "get",
			description: "read the specified " + r.Kind, params: getParams, responses: []response{{"200", "OK", r.Model}}})
	}
	if r.HasVerb("update") {
		g.add(operation{path: path, method: "put", id: "replace" + g.group + g.scoped(), action: "put",
			description: "replace the specified " + r.Kind, params: writeParams, body: r.Model, bodyRequired: true,
			responses: []response{{"200", "OK", r.Model}, {"201", "Created", r.Model}}})
	}
	if r.HasVerb("patch") {
		g.add(operation{path: path, method: "patch", id: "patch" + g.group + g.scoped(), action: "patch",
			description: "partially update the specified " + r.Kind, params: patchParams, body: modelPatch, bodyRequired: true,
			consumes: g.patches(), responses: []response{{"200", "OK", r.Model}, {"201", "Created", r.Model}}})
	}
	if r.HasVerb("delete") {
		model := modelStatus
		if r.ReturnsDeleted {
			model = r.Model
		}
		g.add(operation{path: path, method: "delete", id: "delete" + g.group + g.scoped(), action: "delete",
			description: "delete a " + r.Kind, params: deleteParams, body: modelDeleteOptions,
			responses: []response{{"200", "OK", model}, {"202", "Accepted", model}}})
	}
}

func (g *generator) patches() []string {
	if g.r.Custom {
		return customPatchTypes
	}
	return patchTypes
}

func (g *generator) subresource(s *kinds.Subresource) {
	r := g.r
	model, gvk := r.Model, r.GVK()
	if s.Kind != "" {
		gvk.Kind = s.Kind
	}
	if s.Version != "" {
		gvk.Group, gvk.Version = s.Group, s.Version
	}
	if s.Model != "" {
		model = s.Model
	}
	path, suffix := g.base()+"/{name}/"+s.Name, ""
	for part := range strings.SplitSeq(s.Name, "/") {
		if part != "" {
			suffix += strings.ToUpper(part[:1]) + part[1:]
		}
	}
	id := g.group + g.scoped() + suffix
	what := " " + s.Name + " of the specified " + r.Kind
	for _, verb := range s.Verbs {
		o := operation{path: path, gvk: gvk}
		switch verb {
		case "get":
			o.method, o.action, o.id, o.description = "get", "get", "read"+id, "read"+what
			o.params, o.responses = getParams, []response{{"200", "OK", model}}
		case "update":
			o.method, o.action, o.id, o.description = "put", "put", "replace"+id, "replace"+what
			o.params, o.body, o.bodyRequired = writeParams, model, true
			o.responses = []response{{"200", "OK", model}, {"201", "Created", model}}
		case "patch":
			o.method, o.action, o.id, o.description = "patch", "patch", "patch"+id, "partially update"+what
			o.params, o.body, o.bodyRequired, o.consumes = patchParams, modelPatch, true, g.patches()
			o.responses = []response{{"200", "OK", model}, {"201", "Created", model}}
		case "create":
			o.method, o.action, o.id, o.description = "post", "post", "create"+id, "create"+what
			o.params, o.body, o.bodyRequired = writeParams, model, true
			o.responses = []response{{"200", "OK", model}, {"201", "Created", model}, {"202", "Accepted", model}}
		case "delete":
			o.method, o.action, o.id, o.description = "delete", "delete", "delete"+id, "delete"+what
			o.params, o.body = deleteParams, modelDeleteOptions
			o.responses = []response{{"200", "OK", modelStatus}, {"202", "Accepted", modelStatus}}
		default:
			continue
		}
		g.add(o)
	}
}
