package openapi

import (
	"encoding/json"
	"fmt"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	modelVersion     = "io.k8s.apimachinery.pkg.version.Info"
	modelAPIVersions = "io.k8s.apimachinery.pkg.apis.meta.v1.APIVersions"
	modelGroupList   = "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroupList"
	modelGroup       = "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroup"
)

// others are the operations beside those of group versions, by the names of their documents: what
// version the server has, which groups there are, and the keys of its tokens. Groups of custom
// resources have no document, as upstream.
func others(builtin []*kinds.Resource) map[string]operation {
	all := []string{typeJSON, typeYAML, typeProtobuf}
	out := map[string]operation{
		"version": {tag: "version", id: "getCodeVersion", description: "get the version information for this server",
			produces: []string{typeJSON}, responses: answers(modelVersion)},
		"openid/v1/jwks": {tag: "openid", id: "getServiceAccountIssuerOpenIDKeyset",
			description: "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
			produces:    []string{"application/jwk-set+json"}, responses: answers(plainText)},
		".well-known/openid-configuration": {tag: "WellKnown", id: "getServiceAccountIssuerOpenIDConfiguration",
			description: "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
			produces:    []string{typeJSON}, responses: answers(plainText)},
		"api": {tag: "core", id: "getCoreAPIVersions", description: "get available API versions",
			produces: all, responses: answers(modelAPIVersions)},
		"apis": {tag: "apis", id: "getAPIVersions", description: "get available API versions",
			produces: all, responses: answers(modelGroupList)},
	}
	for _, r := range builtin {
		if r.Group == "" {
			continue
		}
		title, tag := groupName(r.Group)
		out["apis/"+r.Group] = operation{tag: tag, id: "get" + title + "APIGroup", description: "get information of a group",
			produces: all, responses: answers(modelGroup)}
	}
	for name, o := range out {
		o.path, o.method = "/"+name+"/", "get"
		out[name] = o
	}
	return out
}

func answers(model string) []response {
	return []response{{"200", "OK", model}, {code: "401", description: "Unauthorized"}}
}

// otherKinds are those of the models of others.
var otherKinds = map[string]string{modelAPIVersions: "APIVersions", modelGroupList: "APIGroupList", modelGroup: "APIGroup"}

// otherDocument is the document of one operation.
func otherDocument(builtin []*kinds.Resource, o *operation, version string, enums bool) ([]byte, error) {
	set := newSchemaSet(builtin, nil, false, enums)
	if model := o.responses[0].model; model != plainText {
		if err := set.add(model); err != nil {
			return nil, fmt.Errorf("OpenAPI v3 of %s: %w", o.path, err)
		}
	}
	components := object{"securitySchemes": security}
	if len(set.out) > 0 {
		components["schemas"] = set.out
	}
	return json.Marshal(object{
		"openapi":    "3.0.0",
		"info":       object{"title": "Kubernetes", "version": version},
		"paths":      object{o.path: object{o.method: operationV3(o)}},
		"components": components,
	})
}

func (s *schemaSet) otherKinds() {
	for model, kind := range otherKinds {
		s.kind(model, schema.GroupVersionKind{Version: "v1", Kind: kind})
	}
}
