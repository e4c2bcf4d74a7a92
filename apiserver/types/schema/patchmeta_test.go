package schema

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/quorate/quorate/internal/must"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Each patch gives the same through the compiled schema as through the tags of
// upstream's Go structs.
func TestStrategicMergeLikeGoStructs(t *testing.T) {
	deployment := `{"metadata":{"finalizers":["a","b"],"annotations":{"x":"1"}},"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}},
		"template":{"spec":{"containers":[{"name":"a","image":"a:1","env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],
		"ports":[{"containerPort":80,"protocol":"TCP"},{"containerPort":81,"protocol":"UDP"}],"args":["x","y"],
		"volumeMounts":[{"mountPath":"/a","name":"v"}],"resources":{"limits":{"cpu":"1"}}},{"name":"b","image":"b:1"}],
		"volumes":[{"name":"v","emptyDir":{}}],"tolerations":[{"key":"a"}],"imagePullSecrets":[{"name":"s"}]}}}}`
	service := `{"spec":{"selector":{"a":"b"},"ports":[{"port":80,"protocol":"TCP","name":"http"},{"port":443,"protocol":"TCP","name":"https"}]}}`
	for _, c := range []struct {
		name, model string
		data        any
		object      string
		patch       string
	}{
		{"merge a container by name", "io.k8s.api.apps.v1.Deployment", appsv1.Deployment{}, deployment, `{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"b:2"},{"name":"c","image":"c"}]}}}}`},
		{"merge env and ports", "io.k8s.api.apps.v1.Deployment", appsv1.Deployment{}, deployment, `{"spec":{"template":{"spec":{"containers":[{"name":"a","env":[{"name":"B","value":"3"},{"name":"C","value":"4"}],"ports":[{"containerPort":80,"name":"http"}]}]}}}}`},
		{"delete a container", "io.k8s.api.apps.v1.Deployment", appsv1.Deployment{}, deployment, `{"spec":{"template":{"spec":{"containers":[{"$patch":"delete","name":"a"}]}}}}`},
		{"replace the containers", "io.k8s.api.apps.v1.Deployment", appsv1.Deployment{}, deployment, `{"spec":{"template":{"spec":{"containers":[{"$patch":"replace"},{"name":"z","image":"z"}]}}}}`},
		{"replace a map", "io.k8s.api.apps.v1.Deployment", appsv1.Deployment{}, deployment, `{"metadata":{"annotations":{"$patch":"replace","y":"2"}}}`},
		{"retain keys of the strategy", "io.k8s.api.apps.v1.Deployment", appsv1.Deployment{}, deployment, `{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}`},
		{"retain keys of a volume", "io.k8s.api.apps.v1.Deployment", appsv1.Deployment{}, deployment, `{"spec":{"template":{"spec":{"volumes":[{"$retainKeys":["name","hostPath"],"name":"v","hostPath":{"path":"/"}}]}}}}`},
		{"lists without a merge key", "io.k8s.api.apps.v1.Deployment", appsv1.Deployment{}, deployment, `{"spec":{"template":{"spec":{"tolerations":[{"key":"b"}],"containers":[{"name":"a","args":["z"]}]}}}}`},
		{"delete from a list of scalars", "io.k8s.api.apps.v1.Deployment", appsv1.Deployment{}, deployment, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"],"finalizers":["c"]}}`},
		{"order of elements", "io.k8s.api.apps.v1.Deployment", appsv1.Deployment{}, deployment, `{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[{"name":"a","image":"a:9"}]}}}}`},
		{"null deletes", "io.k8s.api.apps.v1.Deployment", appsv1.Deployment{}, deployment, `{"spec":{"template":{"spec":{"containers":[{"name":"a","resources":{"limits":null}}]}}}}`},
		{"ports of a service", "io.k8s.api.core.v1.Service", corev1.Service{}, service, `{"spec":{"ports":[{"port":443,"targetPort":8443},{"port":8080,"protocol":"TCP"}],"selector":{"c":"d"}}}`},
		{"delete a port of a service", "io.k8s.api.core.v1.Service", corev1.Service{}, service, `{"spec":{"ports":[{"$patch":"delete","port":80}]}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			structs, err := strategicpatch.NewPatchMetaFromStruct(c.data)
			must.OK(t, err)
			m, err := Lookup(c.model)
			must.OK(t, err)
			apply := func(meta strategicpatch.LookupPatchMeta) any {
				var object, patch map[string]any
				for text, into := range map[string]*map[string]any{c.object: &object, c.patch: &patch} {
					must.OK(t, json.Unmarshal([]byte(text), into))
				}
				out, err := strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta(object, patch, meta)
				if err != nil {
					return err.Error()
				}
				return map[string]any(out)
			}
			if d := cmp.Diff(apply(structs), apply(m.PatchMeta())); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestPatchMetaPaths: what is below a field, and what cannot be, is found as in upstream's structs.
func TestPatchMetaPaths(t *testing.T) {
	m, err := Lookup("io.k8s.api.core.v1.Pod")
	must.OK(t, err)
	for _, c := range []struct{ path, name, err string }{
		{"spec", "PodSpec", ""},
		{"spec containers", "Container", ""},
		{"spec containers [args", "string", ""},
		{"metadata labels", "map[string]string", ""},
		{"metadata labels a", "string", ""},
		{"metadata managedFields fieldsV1", "FieldsV1", ""},
		{"metadata managedFields fieldsV1 f:spec", "any", ""},
		{"metadata managedFields fieldsV1 f:spec f:containers", "any", ""},
		{"metadata managedFields fieldsV1 f:spec [f:list", "any", ""},
		{"spec nothing", "", `unable to find api field "nothing" in PodSpec`},
		{"spec [nothing", "", `unable to find api field "nothing" in PodSpec`},
		{"spec [hostNetwork", "", "expected slice or array type, but got: bool"},
		{"[spec", "", "expected slice or array type, but got: PodSpec"},
	} {
		at, err := m.PatchMeta(), error(nil)
		for _, name := range strings.Fields(c.path) {
			list := name == "containers" || name == "managedFields" || strings.HasPrefix(name, "[")
			if name = strings.TrimPrefix(name, "["); list {
				at, _, err = at.LookupPatchMetadataForSlice(name)
			} else {
				at, _, err = at.LookupPatchMetadataForStruct(name)
			}
			if err != nil {
				break
			}
		}
		switch {
		case c.err != "":
			if err == nil || err.Error() != c.err {
				t.Errorf("%s: %v, want %s", c.path, err, c.err)
			}
		case err != nil || at.Name() != c.name:
			t.Errorf("%s: %v, %v", c.path, at, err)
		}
	}
}
