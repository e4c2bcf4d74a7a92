package upstream

import (
	"strings"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// mapper finds the resource of a kind. The methods of the interface that it does not have panic: no
// plugin calls them.
type mapper struct {
	meta.RESTMapper
	kinds func() *kinds.Registry
}

// RESTMappings implements meta.RESTMapper for one version. As upstream's mapper, it takes kinds in lower case, too, and
// a kind of the core group without its version.
func (m mapper) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	gvk := gk.WithVersion(versions[0])
	in := gvk.GroupVersion()
	if in.Empty() {
		in.Version = "v1"
	}
	served := m.kinds()
	if r := served.LookupKind(in.WithKind(gk.Kind)); r != nil {
		return mapping(r), nil
	}
	for _, r := range served.All() {
		if r.Group == in.Group && r.Version == in.Version && strings.ToLower(r.Kind) == gk.Kind {
			return mapping(r), nil
		}
	}
	return nil, &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: versions}
}

func mapping(r *kinds.Resource) []*meta.RESTMapping {
	scope := meta.RESTScopeRoot
	if r.Namespaced {
		scope = meta.RESTScopeNamespace
	}
	return []*meta.RESTMapping{{Resource: r.GVR(), GroupVersionKind: r.GVR().GroupVersion().WithKind(r.Kind), Scope: scope}}
}
