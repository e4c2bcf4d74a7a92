package quota

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is what a name in the spec.hard of a quota bounds.
type Resource struct {
	// Of is the kind of object that is counted.
	Of schema.GroupResource
	// Amount is the name of what each object uses of it. Empty: each object counts one.
	Amount string
}

// counted are names from before there was count/.
var counted = map[string]schema.GroupResource{
	"configmaps":             {Resource: "configmaps"},
	"persistentvolumeclaims": VolumeClaims,
	"replicationcontrollers": {Resource: "replicationcontrollers"},
	"resourcequotas":         {Resource: "resourcequotas"},
	"secrets":                {Resource: "secrets"},
	"services":               Services,
}

// ignored are resources that quotas never count.
var ignored = map[schema.GroupResource]bool{
	{Resource: "bindings"}:          true,
	{Resource: "componentstatuses"}: true,
	{Resource: "events"}:            true,
	{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}:       true,
	{Group: "authentication.k8s.io", Resource: "tokenreviews"}:             true,
	{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}: true,
	{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}:  true,
	{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:   true,
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:      true,
	{Group: "events.k8s.io", Resource: "events"}:                           true,
}

// Ignored reports whether quotas never count a resource.
func Ignored(gr schema.GroupResource) bool { return ignored[gr] }

const countPrefix = "count/"

// ResourceOf is what a name in a quota bounds. ok is false for what nothing uses: such a bound
// is stored and never reached.
func ResourceOf(name string) (r Resource, ok bool) {
	if gr, ok := counted[name]; ok {
		return Resource{Of: gr}, true
	}
	if of, ok := strings.CutPrefix(name, countPrefix); ok {
		gr := schema.ParseGroupResource(of)
		return Resource{Of: gr}, gr.Resource != "" && !ignored[gr]
	}
	switch name {
	case pods, limitsCPU, "limits.memory", "limits.ephemeral-storage":
		return Resource{Pods, name}, true
	case "cpu", "memory", "ephemeral-storage":
		return Resource{Pods, requestsPrefix + name}, true
	case nodePorts, loadBalancers:
		return Resource{Services, name}, true
	case storage:
		return Resource{VolumeClaims, name}, true
	}
	switch {
	case strings.HasSuffix(name, ofStorageClass+storage), strings.HasSuffix(name, ofStorageClass+claims):
		return Resource{VolumeClaims, name}, true
	case strings.HasSuffix(name, ofDeviceClass):
		return Resource{ResourceClaims, name}, true
	case strings.HasPrefix(name, hugePages):
		return Resource{Pods, requestsPrefix + name}, true
	}
	request, ok := strings.CutPrefix(name, requestsPrefix)
	switch {
	case !ok:
		return Resource{}, false
	case request == "cpu", request == "memory", request == "ephemeral-storage", strings.HasPrefix(request, hugePages),
		strings.HasPrefix(request, resourcev1.ResourceDeviceClassPrefix),
		strings.Contains(request, "/") && !strings.Contains(request, corev1.ResourceDefaultNamespacePrefix):
		return Resource{Pods, name}, true
	}
	return Resource{}, false
}

// NamesOf are all names under which quotas bound what an object of a resource uses that has
// this list.
func NamesOf(gr schema.GroupResource, l List) []string {
	names := []string{countPrefix + gr.String()}
	if old, ok := counted[gr.Resource]; ok && old == gr {
		names = append(names, gr.Resource)
	}
	for i := range l {
		if l[i].Quantity.Sign() <= 0 {
			continue
		}
		names = append(names, l[i].Name)
		if short, ok := strings.CutPrefix(l[i].Name, requestsPrefix); ok && gr == Pods {
			if r, ok := ResourceOf(short); ok && r == (Resource{Pods, l[i].Name}) {
				names = append(names, short)
			}
		}
	}
	return names
}
