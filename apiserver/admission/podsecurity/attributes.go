package podsecurity

import (
	"fmt"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/tree"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// attributes are those of a write as the library wants them: objects are decoded when it asks
// for them, which it does only where the namespace's labels ask for something.
type attributes struct {
	*admission.Attributes
	object, old runtime.Object
}

// GetOperation and the methods below are those of the library's Attributes.
func (a *attributes) GetOperation() admissionv1.Operation {
	return admissionv1.Operation(a.Operation)
}

func (a *attributes) GetUserName() string {
	if a.User == nil {
		return ""
	}
	return a.User.Name
}

// GetNamespace of a namespace is its own name, as in upstream's requests.
func (a *attributes) GetNamespace() string {
	if a.Resource.Group == "" && a.Resource.Resource == "namespaces" {
		return a.Name
	}
	return a.Namespace
}

func (a *attributes) GetObject() (obj runtime.Object, err error) {
	if a.object == nil {
		a.object, err = a.decode(a.Object)
	}
	return a.object, err
}

func (a *attributes) GetOldObject() (obj runtime.Object, err error) {
	if a.old == nil {
		a.old, err = a.decode(a.Old)
	}
	return a.old, err
}

// types are what the library knows, in the version that is served.
var types = map[schema.GroupResource]func() runtime.Object{
	{Resource: "namespaces"}:                  func() runtime.Object { return &corev1.Namespace{} },
	{Resource: "pods"}:                        func() runtime.Object { return &corev1.Pod{} },
	{Resource: "replicationcontrollers"}:      func() runtime.Object { return &corev1.ReplicationController{} },
	{Resource: "podtemplates"}:                func() runtime.Object { return &corev1.PodTemplate{} },
	{Group: "apps", Resource: "replicasets"}:  func() runtime.Object { return &appsv1.ReplicaSet{} },
	{Group: "apps", Resource: "deployments"}:  func() runtime.Object { return &appsv1.Deployment{} },
	{Group: "apps", Resource: "statefulsets"}: func() runtime.Object { return &appsv1.StatefulSet{} },
	{Group: "apps", Resource: "daemonsets"}:   func() runtime.Object { return &appsv1.DaemonSet{} },
	{Group: "batch", Resource: "jobs"}:        func() runtime.Object { return &batchv1.Job{} },
	{Group: "batch", Resource: "cronjobs"}:    func() runtime.Object { return &batchv1.CronJob{} },
}

func (a *attributes) decode(in tree.Object) (runtime.Object, error) {
	made := types[a.Resource.GroupResource()]
	if made == nil || in == nil {
		return nil, fmt.Errorf("unexpected type %s", a.Kind)
	}
	out := made()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(in, out); err != nil {
		return nil, fmt.Errorf("decode a %s: %w", a.Kind.Kind, err)
	}
	return out, nil
}
