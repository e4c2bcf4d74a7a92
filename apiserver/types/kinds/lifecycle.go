package kinds

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Minor is the minor version of the Kubernetes API that is served, 36 of 1.36. It is
// what deprecations are measured by. A test compares it with go.mod.
const Minor = 36

// Deprecation says that a version of a kind is on its way out.
type Deprecation struct {
	// Warning is what every client of it is told.
	Warning string
	// RemovedRelease is the release that has it no more, "1.37". Empty: none is
	// known.
	RemovedRelease string
}

// What the API's types say about their own versions (generated methods of k8s.io/api).
type (
	lifecycleDeprecated  interface{ APILifecycleDeprecated() (major, minor int) }
	lifecycleRemoved     interface{ APILifecycleRemoved() (major, minor int) }
	lifecycleReplacement interface {
		APILifecycleReplacement() schema.GroupVersionKind
	}
)

// deprecationOf asks the Go type of a built-in kind. Nil: not deprecated in this
// release, whatever may come.
func deprecationOf(gvk schema.GroupVersionKind) *Deprecation {
	object, err := scheme.Scheme.New(gvk)
	if err != nil {
		return nil // those of k8s.io/api are all in the scheme, a test says
	}
	d, ok := object.(lifecycleDeprecated)
	if !ok {
		return nil
	}
	major, minor := d.APILifecycleDeprecated()
	if major == 0 && minor == 0 || major > 1 || minor > Minor {
		return nil
	}
	out := &Deprecation{Warning: fmt.Sprintf("%s %s is deprecated in v%d.%d+", gvk.GroupVersion(), gvk.Kind, major, minor)}
	if r, ok := object.(lifecycleRemoved); ok {
		if major, minor := r.APILifecycleRemoved(); major != 0 || minor != 0 {
			out.RemovedRelease = fmt.Sprintf("%d.%d", major, minor)
			out.Warning += ", unavailable in v" + out.RemovedRelease + "+"
		}
	}
	if r, ok := object.(lifecycleReplacement); ok {
		if by := r.APILifecycleReplacement(); !by.Empty() {
			out.Warning += fmt.Sprintf("; use %s %s", by.GroupVersion(), by.Kind)
		}
	}
	return out
}
