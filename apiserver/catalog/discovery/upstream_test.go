package discovery

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/facts"
	"github.com/quorate/quorate/internal/must"
	v2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What discovery says of the built-in resources is what upstream publishes, but for
// testdata/differences.txt.
func TestUpstream(t *testing.T) {
	registry, err := kinds.Available()
	must.OK(t, err)
	h := handlerOf(registry)
	hashes := map[string]string{}
	var lines []string
	for _, gv := range groupVersions(t, h) {
		prefix := "/apis/"
		if !strings.Contains(gv, "/") {
			prefix = "/api/"
		}
		var list metav1.APIResourceList
		read(t, h, prefix+gv, "", &list)
		for _, r := range list.APIResources {
			hashes[gv+" "+r.Name] = r.StorageVersionHash
		}
	}
	for _, root := range []string{"/api", "/apis"} {
		var groups v2.APIGroupDiscoveryList
		read(t, h, root, acceptV2, &groups)
		for _, g := range groups.Items {
			for _, v := range g.Versions {
				gv := v.Version
				if g.Name != "" {
					gv = g.Name + "/" + gv
				}
				for _, r := range v.Resources {
					lines = append(lines, fmt.Sprintf("%s %s kind=%s scope=%s singular=%s verbs=%s short=%s categories=%s hash=%s",
						gv, r.Resource, kindText(r.ResponseKind), r.Scope, r.SingularResource, strings.Join(r.Verbs, ","),
						strings.Join(r.ShortNames, ","), strings.Join(r.Categories, ","), hashes[gv+" "+r.Resource]))
					for _, s := range r.Subresources {
						lines = append(lines, fmt.Sprintf("%s %s/%s kind=%s verbs=%s", gv, r.Resource, s.Subresource, kindText(s.ResponseKind), strings.Join(s.Verbs, ",")))
					}
				}
			}
		}
	}
	facts.Compare(t, "testdata/upstream.txt", "testdata/differences.txt", lines)
}

func kindText(k *metav1.GroupVersionKind) string {
	switch {
	case k == nil || k.Kind == "":
		return "-"
	case k.Group == "" && k.Version == "":
		return k.Kind
	}
	return k.Group + "/" + k.Version + "." + k.Kind
}

func groupVersions(t *testing.T, h http.Handler) []string {
	t.Helper()
	var core metav1.APIVersions
	read(t, h, "/api", "", &core)
	out := slices.Clone(core.Versions)
	var groups metav1.APIGroupList
	read(t, h, "/apis", "", &groups)
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			out = append(out, v.GroupVersion)
		}
	}
	return out
}

func read(t *testing.T, h http.Handler, path, accept string, into any) {
	t.Helper()
	w := get(h, path, "Accept", accept)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
