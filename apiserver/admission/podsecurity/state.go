package podsecurity

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/raftstore/mvcc"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxKept is how many namespaces are kept with their labels.
const maxKept = 4096

var (
	namespacesGR = schema.GroupResource{Resource: "namespaces"}
	podsGR       = schema.GroupResource{Resource: "pods"}
)

// namespaces gets a namespace with nothing but its name and its labels, which the version has
// beside the object: nothing is decoded.
type namespaces struct {
	state *state.State

	mu   sync.Mutex
	kept map[string]keptNamespace // by name; emptied when full
}

// keptNamespace is what a version has of the library's. There is one of each namespace: old
// versions must not stay in memory because they were once looked at.
type keptNamespace struct {
	version *mvcc.Version
	labels  *corev1.Namespace
}

// GetNamespace implements the library's NamespaceGetter.
func (s *namespaces) GetNamespace(_ context.Context, name string) (*corev1.Namespace, error) {
	v := s.state.Version(namespacesGR, "", name)
	if v == nil {
		return nil, apierrors.NewNotFound(namespacesGR, name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if had := s.kept[name]; had.version == v {
		return had.labels, nil
	}
	if s.kept == nil || len(s.kept) >= maxKept {
		s.kept = make(map[string]keptNamespace)
	}
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: policyLabels(v)}}
	s.kept[name] = keptNamespace{v, made}
	return made, nil
}

// policyLabels are those of a namespace that the library reads.
func policyLabels(v *mvcc.Version) map[string]string {
	var out map[string]string
	for name, value := range v.Labels.All() {
		if strings.HasPrefix(name, "pod-security.kubernetes.io/") {
			if out == nil {
				out = map[string]string{}
			}
			out[name] = value
		}
	}
	return out
}

// pods lists the Pods of a namespace: what checks look at of them. The library gives it a
// second at most.
type pods struct{ state *state.State }

// pod is a Pod without its status and the owners of its fields.
type pod struct {
	Metadata struct {
		Name            string                  `json:"name"`
		Annotations     map[string]string       `json:"annotations"`
		OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
	} `json:"metadata"`
	Spec corev1.PodSpec `json:"spec"`
}

// ListPods implements the library's PodLister. Errors: the context has ended, or a Pod cannot
// be decoded.
func (s pods) ListPods(ctx context.Context, namespace string) ([]*corev1.Pod, error) {
	var out []*corev1.Pod
	for _, v := range s.state.In(podsGR, namespace) {
		if err := context.Cause(ctx); err != nil {
			return nil, fmt.Errorf("list the Pods of %s: %w", namespace, err)
		}
		var p pod
		if err := json.Unmarshal(v.Value(), &p); err != nil {
			return nil, fmt.Errorf("decode Pod %s: %w", v.Key, err)
		}
		made := &corev1.Pod{Spec: p.Spec}
		made.Name, made.Namespace, made.Annotations, made.OwnerReferences = p.Metadata.Name, namespace, p.Metadata.Annotations, p.Metadata.OwnerReferences
		out = append(out, made)
	}
	return out, nil
}
