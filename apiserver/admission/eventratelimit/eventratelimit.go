// Package eventratelimit is the plugin EventRateLimit: it refuses Events of which there are too
// many, by token buckets for the server, namespaces, users, or what Events speak of. It is off
// by default, and needs a configuration. Each node counts by itself, as each kube-apiserver does.
package eventratelimit

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

type plugin struct {
	limits []enforcer
	now    func() time.Time
}

// enforcer holds Events against one limit.
type enforcer struct {
	kind    limitType
	buckets *buckets
}

// New returns the plugin. config is a Configuration of eventratelimit.admission.k8s.io/v1alpha1.
// Errors: it cannot be read, or has no limits or bad ones.
func New(config io.Reader) (admission.Validator, error) { return newAt(config, time.Now) }

func newAt(config io.Reader, now func() time.Time) (*plugin, error) {
	c, err := load(config)
	if err != nil {
		return nil, err
	}
	p := &plugin{now: now}
	for i := range c.Limits {
		p.limits = append(p.limits, enforcer{c.Limits[i].Type, newBuckets(&c.Limits[i])})
	}
	return p, nil
}

// Handles implements admission.Plugin. Events of events.k8s.io are of another kind, which
// upstream does not limit either; a dry run writes nothing.
func (p *plugin) Handles(a *admission.Attributes) bool {
	return a.Kind.Kind == "Event" && a.Kind.Group == corev1.GroupName && !a.DryRun &&
		(a.Operation == admission.Create || a.Operation == admission.Update)
}

// Validate implements admission.Validator. All limits count an Event, also behind one that
// refuses it.
func (p *plugin) Validate(_ context.Context, a *admission.Attributes) error {
	now := p.now()
	var errs []error
	for _, l := range p.limits {
		if key := l.kind.keyOf(a); !l.buckets.take(key, now) {
			errs = append(errs, fmt.Errorf("limit reached on type %v for key %v", l.kind, key))
		}
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		return apierrors.NewTooManyRequestsError(err.Error())
	}
	return nil
}

// keyOf names the bucket of an Event.
func (t limitType) keyOf(a *admission.Attributes) string {
	switch t {
	case ofNamespace:
		return a.Namespace
	case ofUser:
		if a.User != nil {
			return a.User.Name
		}
	case ofSourceAndObject:
		source, about := tree.As(a.Object["source"]), tree.As(a.Object["involvedObject"])
		return strings.Join([]string{
			tree.Text(source, "component"), tree.Text(source, "host"),
			tree.Text(about, "kind"), tree.Text(about, "namespace"), tree.Text(about, "name"), tree.Text(about, "uid"), tree.Text(about, "apiVersion"),
		}, "")
	}
	return ""
}
