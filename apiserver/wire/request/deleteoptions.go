//lint:file-ignore SA1019 orphanDependents is deprecated for clients, not for servers: older clients still send it

package request

import (
	"fmt"

	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
)

// DeleteOptions are the options of a delete as the query has them. Errors: 422.
func (q *Options) DeleteOptions() (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{
		GracePeriodSeconds: q.GracePeriodSeconds, OrphanDependents: q.OrphanDependents, DryRun: q.DryRun, Preconditions: q.preconditions(),
	}
	if q.PropagationPolicy != nil {
		p := metav1.DeletionPropagation(*q.PropagationPolicy)
		o.PropagationPolicy = &p
	}
	return o, CheckDeleteOptions(o)
}

// DeleteOptionsOf reads the options of a delete from a body that was decoded, which wins
// over the query. Errors: 400, 422.
func DeleteOptionsOf(body tree.Object) (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	if err := fillDeleteOptions(o, body); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid DeleteOptions: %v", err))
	}
	return o, CheckDeleteOptions(o)
}

// CheckDeleteOptions validates the options of a delete. Errors: 422.
func CheckDeleteOptions(o *metav1.DeleteOptions) error {
	if errs := metav1validation.ValidateDeleteOptions(o); len(errs) > 0 {
		return status.InvalidOptions("DeleteOptions", errs)
	}
	return nil
}

// preconditions are those of a delete whose options are in the query.
func (q *Options) preconditions() *metav1.Preconditions {
	if q.UID == "" && q.ResourceVersion == "" {
		return nil
	}
	p := &metav1.Preconditions{}
	if q.UID != "" {
		p.UID = (*types.UID)(&q.UID)
	}
	if q.ResourceVersion != "" {
		p.ResourceVersion = &q.ResourceVersion
	}
	return p
}

// fillDeleteOptions reads the fields that the server honours from a tree.
func fillDeleteOptions(o *metav1.DeleteOptions, body tree.Object) error {
	if kind, _ := body["kind"].(string); kind != "" && kind != "DeleteOptions" {
		return fmt.Errorf("kind %q is not DeleteOptions", kind)
	}
	var err error
	get := func(m map[string]any, name string, want string, set func(v any) bool) {
		if v := m[name]; v != nil && !set(v) && err == nil {
			err = fmt.Errorf("%s: must be %s", name, want)
		}
	}
	get(body, "gracePeriodSeconds", "an integer", func(v any) bool {
		n, ok := tree.Int(v)
		o.GracePeriodSeconds = &n
		return ok
	})
	get(body, "orphanDependents", "a boolean", func(v any) bool {
		b, ok := v.(bool)
		o.OrphanDependents = &b
		return ok
	})
	get(body, "propagationPolicy", "a string", func(v any) bool {
		s, ok := v.(string)
		p := metav1.DeletionPropagation(s)
		o.PropagationPolicy = &p
		return ok
	})
	get(body, "dryRun", "a list of strings", func(v any) bool {
		var ok bool
		o.DryRun, ok = tree.Strings(v)
		return ok
	})
	get(body, "preconditions", "an object", func(v any) bool {
		m, ok := v.(map[string]any)
		p := &metav1.Preconditions{}
		get(m, "uid", "a string", func(v any) bool {
			s, ok := v.(string)
			p.UID = (*types.UID)(&s)
			return ok
		})
		get(m, "resourceVersion", "a string", func(v any) bool {
			s, ok := v.(string)
			p.ResourceVersion = &s
			return ok
		})
		o.Preconditions = p
		return ok
	})
	return err
}
