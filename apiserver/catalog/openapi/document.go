package openapi

import (
	"encoding/json"
	"fmt"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type object = map[string]any

// security is how clients authenticate, as upstream says it.
var security = object{"BearerToken": object{
	"type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header",
}}

// form is the version of the document that operations are written in.
type form struct {
	ref       string
	operation func(*operation) object
}

var (
	formV3 = form{refV3, operationV3}
	formV2 = form{refV2, operationV2}
)

// paths writes the operations of resources and collects the models they name.
func paths(resources []*kinds.Resource, f form, set *schemaSet) (object, error) {
	out := object{}
	seen := map[schema.GroupVersion]bool{}
	if set.part {
		// Those of the built-in part.
		for _, r := range set.builtin {
			seen[r.GroupVersion()] = true
		}
	}
	for _, r := range resources {
		all := operations(r)
		if gv := r.GroupVersion(); !seen[gv] {
			seen[gv] = true
			all = append(all, resourceListOperation(gv))
		}
		for _, o := range all {
			item, _ := out[o.path].(object)
			if item == nil {
				item = object{}
				out[o.path] = item
			}
			item[o.method] = f.operation(&o)
			for _, model := range append(responseModels(&o), o.body) {
				if model == "" || model == plainText {
					continue
				}
				if err := set.add(model); err != nil {
					return nil, fmt.Errorf("%s %s: %w", o.method, o.path, err)
				}
			}
		}
	}
	return out, nil
}

func responseModels(o *operation) []string {
	var out []string
	for _, r := range o.responses {
		out = append(out, r.model)
	}
	return out
}

// documentV3 is the document of one group version, whose resources are given; builtin
// are all that are built in.
func documentV3(builtin, resources []*kinds.Resource, gv schema.GroupVersion, version string, enums bool) ([]byte, error) {
	set := newSchemaSet(builtin, resources, false, enums)
	p, err := paths(resources, formV3, set)
	if err != nil {
		return nil, fmt.Errorf("OpenAPI v3 of %s: %w", gv, err)
	}
	// Watches answer with events, which no operation names.
	if err := set.add(modelWatchEvent); err != nil {
		return nil, fmt.Errorf("OpenAPI v3 of %s: %w", gv, err)
	}
	return json.Marshal(object{
		"openapi":    "3.0.0",
		"info":       object{"title": "Kubernetes", "version": version},
		"paths":      p,
		"components": object{"schemas": set.out, "securitySchemes": security},
	})
}

func common(o *operation) object {
	out := object{
		"tags":        []string{o.tag},
		"description": o.description,
		"operationId": o.id,
	}
	if o.action != "" {
		out["x-kubernetes-action"] = o.action
	}
	if o.gvk.Kind != "" {
		out[gvkX] = gvkMap(o.gvk)
	}
	return out
}

func operationV3(o *operation) object {
	out := common(o)
	var params []object
	for _, p := range o.params {
		x := object{"name": p.name, "in": p.in, "description": p.description,
			"schema": object{"type": p.kind, "uniqueItems": true}}
		if p.in == "path" {
			x["required"] = true
		}
		params = append(params, x)
	}
	if len(params) > 0 {
		out["parameters"] = params
	}
	if o.body != "" {
		consumes := o.consumes
		if consumes == nil {
			consumes = []string{"*/*"}
		}
		body := object{"content": contentV3(consumes, o.body)}
		if o.bodyRequired {
			body["required"] = true
		}
		out["requestBody"] = body
	}
	responses := object{}
	for _, r := range o.responses {
		x := object{"description": r.description}
		if r.model != "" {
			x["content"] = contentV3(o.produces, r.model)
		}
		responses[r.code] = x
	}
	out["responses"] = responses
	return out
}

func contentV3(types []string, model string) object {
	content := object{}
	of := modelOf(refV3, model)
	for _, t := range types {
		content[t] = object{"schema": of}
	}
	return content
}

// modelOf refers to a model.
func modelOf(ref, model string) object {
	if model == plainText {
		return object{"type": "string"}
	}
	return object{"$ref": ref + model}
}

func operationV2(o *operation) object {
	out := common(o)
	out["schemes"] = []string{"https"}
	out["produces"] = o.produces
	out["consumes"] = o.consumes
	if o.consumes == nil {
		out["consumes"] = []string{"*/*"}
	}
	var params []object
	for _, p := range o.params {
		x := object{"name": p.name, "in": p.in, "description": p.description, "type": p.kind, "uniqueItems": true}
		if p.in == "path" {
			x["required"] = true
		}
		params = append(params, x)
	}
	if o.body != "" {
		x := object{"name": "body", "in": "body", "schema": object{"$ref": refV2 + o.body}}
		if o.bodyRequired {
			x["required"] = true
		}
		params = append(params, x)
	}
	if len(params) > 0 {
		out["parameters"] = params
	}
	responses := object{}
	for _, r := range o.responses {
		x := object{"description": r.description}
		if r.model != "" {
			x["schema"] = modelOf(refV2, r.model)
		}
		responses[r.code] = x
	}
	out["responses"] = responses
	return out
}
