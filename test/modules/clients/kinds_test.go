package clients

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kind is one of the resources that are written and watched.
type kind struct {
	resource string
	name     string
	spec     map[string]any // what an object needs to be valid
	typed    func() client.Object
	list     func() client.ObjectList
}

// Both are written to. Secrets are not: their watches are idle, as nearly all
// watches are in real clusters.
var (
	configMaps = kind{"configmaps", "ConfigMap", nil, func() client.Object { return &corev1.ConfigMap{} }, func() client.ObjectList { return &corev1.ConfigMapList{} }}
	pods       = kind{"pods", "Pod", map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}}, func() client.Object { return &corev1.Pod{} }, func() client.ObjectList { return &corev1.PodList{} }}
	secrets    = kind{"secrets", "Secret", nil, func() client.Object { return &corev1.Secret{} }, func() client.ObjectList { return &corev1.SecretList{} }}

	written = []kind{configMaps, pods}
	watched = []kind{configMaps, pods, secrets}
)

func (k kind) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: k.resource}
}

// number is the annotation that numbers the states of an object, without holes
// and across deletions, so that a missed one shows.
const number = "test/number"

// object is an object of this kind in a numbered state.
func (k kind) object(name string, n int) *unstructured.Unstructured {
	o := map[string]any{
		"apiVersion": "v1", "kind": k.name,
		"metadata": map[string]any{"name": name, "namespace": namespace, "annotations": map[string]any{number: strconv.Itoa(n)}},
	}
	if k.spec != nil {
		o["spec"] = k.spec
	}
	return &unstructured.Unstructured{Object: o}
}

// change is one event of an object, and what identifies it everywhere: in the
// writers' notes, in the servers' history and in the clients' handlers.
type change struct {
	event string // ADDED, MODIFIED, DELETED
	name  string
	state string // the value of the annotation number; of a deletion the last one
}

func (c change) String() string { return fmt.Sprintf("%s %s #%s", c.event, c.name, c.state) }

// event is a change with its place in the history.
type event struct {
	change
	revision string
}

func eventOf(what string, o client.Object) event {
	return event{change{what, o.GetName(), o.GetAnnotations()[number]}, o.GetResourceVersion()}
}
