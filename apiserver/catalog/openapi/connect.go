package openapi

import (
	"reflect"
	"strings"

	"github.com/quorate/quorate/apiserver/types/kinds"
	corev1 "k8s.io/api/core/v1"
)

// documentedOptions are options in a query, as upstream's types document them.
type documentedOptions interface{ SwaggerDoc() map[string]string }

// connectOptions are those of streams, logs and proxies, by the resource and the subresource.
var connectOptions = map[string]documentedOptions{
	"pods/exec":        corev1.PodExecOptions{},
	"pods/attach":      corev1.PodAttachOptions{},
	"pods/portforward": corev1.PodPortForwardOptions{},
	"pods/log":         corev1.PodLogOptions{},
	"pods/proxy":       corev1.PodProxyOptions{},
	"services/proxy":   corev1.ServiceProxyOptions{},
	"nodes/proxy":      corev1.NodeProxyOptions{},
}

var proxyMethods = []string{"delete", "get", "head", "options", "patch", "post", "put"}

// connections are the operations of a subresource that leads to a node or a Pod.
func (g *generator) connections(s *kinds.Subresource) {
	options := connectOptions[g.r.Plural+"/"+s.Name]
	suffix := strings.ToUpper(s.Name[:1]) + s.Name[1:]
	path := g.base() + "/{name}/" + s.Name
	o := operation{
		path: path, method: "get", gvk: g.r.GVK(), action: "connect", params: queryOf(options), produces: []string{"*/*"},
		responses: []response{{"200", "OK", plainText}}, noPretty: true,
	}
	if s.Name == "log" {
		o.action, o.id, o.description = "get", "read"+g.group+g.scoped()+suffix, "read log of the specified "+g.r.Kind
		o.produces = append([]string{"text/plain"}, g.produces...)
		o.noPretty = false
		g.add(o)
		return
	}
	o.gvk.Kind = s.Kind
	methods := []string{"get", "post"}
	if s.Name == "proxy" {
		methods = proxyMethods
	}
	for _, method := range methods {
		o := o
		o.method = method
		o.id = "connect" + g.group + strings.ToUpper(method[:1]) + method[1:] + g.scoped() + suffix
		o.description = "connect " + strings.ToUpper(method) + " requests to " + s.Name + " of " + g.r.Kind
		g.add(o)
		if s.Name == "proxy" {
			o.path, o.id = path+"/{path}", o.id+"WithPath"
			o.params = append([]param{paramPath}, o.params...)
			g.add(o)
		}
	}
}

// queryOf are the parameters that options can be given by.
func queryOf(options documentedOptions) (all []param) {
	doc := options.SwaggerDoc()
	of := reflect.TypeOf(options)
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "sinceTime" {
			continue // upstream documents no parameters of a struct type
		}
		t := field.Type
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		kind := "string"
		switch t.Kind() {
		case reflect.Bool:
			kind = "boolean"
		case reflect.Int32, reflect.Int64:
			kind = "integer"
		}
		all = append(all, param{name, "query", kind, doc[name]})
	}
	return all
}
