package clients

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Mill is the custom resource of the operator: it wants stones, which are
// ConfigMaps of its own, and an entry in a register that only its finalizer
// removes.
type Mill struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              MillSpec   `json:"spec"`
	Status            MillStatus `json:"status,omitempty"`
}

type MillSpec struct {
	Stones int    `json:"stones"`
	Flour  string `json:"flour,omitempty"` // the definition has a default
}

type MillStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Stones             int                `json:"stones"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

func (m *Mill) DeepCopyObject() runtime.Object {
	out := *m
	m.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = append([]metav1.Condition(nil), m.Status.Conditions...)
	return &out
}

type MillList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Mill `json:"items"`
}

func (l *MillList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]Mill, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Mill)
	}
	return &out
}

var (
	millVersion = schema.GroupVersion{Group: "operator.example.com", Version: "v1"}
	millScheme  = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
		s.AddKnownTypes(millVersion, &Mill{}, &MillList{})
		metav1.AddToGroupVersion(s, millVersion)
		return nil
	})
)

const millDefinition = `{
	"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
	"metadata": {"name": "mills.operator.example.com"},
	"spec": {
		"group": "operator.example.com", "scope": "Namespaced",
		"names": {"plural": "mills", "singular": "mill", "kind": "Mill", "listKind": "MillList"},
		"versions": [{
			"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
			"schema": {"openAPIV3Schema": {
				"type": "object", "required": ["spec"],
				"properties": {
					"spec": {
						"type": "object", "required": ["stones"],
						"properties": {
							"stones": {"type": "integer", "minimum": 0, "maximum": 5},
							"flour": {"type": "string", "default": "wheat"}
						}
					},
					"status": {
						"type": "object",
						"properties": {
							"observedGeneration": {"type": "integer", "format": "int64"},
							"stones": {"type": "integer"},
							"conditions": {
								"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
								"items": {
									"type": "object", "required": ["type", "status"],
									"properties": {
										"type": {"type": "string"}, "status": {"type": "string"}, "reason": {"type": "string"}, "message": {"type": "string"},
										"lastTransitionTime": {"type": "string", "format": "date-time"}, "observedGeneration": {"type": "integer", "format": "int64"}
									}
								}
							}
						}
					}
				}
			}}
		}]
	}
}`
