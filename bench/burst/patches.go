package burst

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// kind is a kind of patch.
type kind struct {
	contentType, query string
	// body sets the annotation of a Deployment to a value.
	body func(object, value string, number int64) []byte
}

// All clients are one manager, as one tool is, and set one annotation.
const (
	manager    = "fieldManager=burst"
	annotation = "burst"
)

var kinds = map[string]kind{
	"apply": {"application/apply-patch+yaml", "force=true&" + manager, func(object, value string, number int64) []byte {
		return deployment(object, value, number)
	}},
	"json": {"application/json-patch+json", manager, func(_, value string, number int64) []byte {
		return fmt.Appendf(nil, `[{"op":"add","path":"/metadata/annotations/%s","value":%q},{"op":"replace","path":"/spec/minReadySeconds","value":%d}]`, annotation, value, number%100)
	}},
	"strategic": {"application/strategic-merge-patch+json", manager, func(_, value string, number int64) []byte {
		return fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":"N","value":"%d"}]}]}}}}`, annotation, value, number)
	}},
	"merge": {"application/merge-patch+json", manager, func(_, value string, number int64) []byte {
		return fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},"spec":{"minReadySeconds":%d}}`, annotation, value, number%100)
	}},
}

// PatchKinds are the names of the kinds of patches.
func PatchKinds() []string { return slices.Sorted(maps.Keys(kinds)) }

func (k kind) header() http.Header {
	return http.Header{"Accept": {"application/json"}, "Content-Type": {k.contentType}}
}

// deployment is a Deployment as charts have them, without replicas: nothing runs.
func deployment(name, value string, number int64) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%[1]q,"labels":{"app":%[1]q,"tier":"backend","part-of":"burst"},"annotations":{"burst":%[2]q}},`+
		`"spec":{"replicas":0,"minReadySeconds":%[3]d,"selector":{"matchLabels":{"app":%[1]q}},"template":{"metadata":{"labels":{"app":%[1]q,"tier":"backend"}},"spec":{`+
		`"containers":[{"name":"main","image":"registry.example/main:1","ports":[{"containerPort":8080,"name":"http"},{"containerPort":9090,"name":"metrics"}],`+
		`"env":[{"name":"N","value":"%[4]d"},{"name":"LOG","value":"info"},{"name":"POD","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],`+
		`"resources":{"requests":{"cpu":"10m","memory":"32Mi"},"limits":{"memory":"64Mi"}},"readinessProbe":{"httpGet":{"path":"/ready","port":"http"},"periodSeconds":10},`+
		`"volumeMounts":[{"name":"config","mountPath":"/etc/main"}]},{"name":"side","image":"registry.example/side:1","args":["--listen=:9091"]}],`+
		`"volumes":[{"name":"config","configMap":{"name":"main"}}]}}}}`, name, value, number%100, number)
}
