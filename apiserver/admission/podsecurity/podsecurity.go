// Package podsecurity is the admission plugin PodSecurity: Pods are held to the Pod Security
// Standards that the labels of their namespace name. What the standards say, and when they are
// asked, is k8s.io/pod-security-admission; here is what it reads, and how it is answered.
package podsecurity

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/state"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/component-base/metrics"
	library "k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/admission/api/load"
	"k8s.io/pod-security-admission/api"
	securitymetrics "k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"
)

// apiVersion is the Kubernetes version that is served: the metrics call later ones "future".
var apiVersion = api.MajorMinorVersion(1, 36)

// Plugin is the plugin. Safe for concurrent use.
type Plugin struct{ library *library.Admission }

// New returns the plugin. config is a PodSecurityConfiguration, nil for the default: everything
// is privileged. registerer gets the metrics; nil:
// nobody does. Errors: the configuration is none, or invalid.
func New(s *state.State, config io.Reader, registerer prometheus.Registerer) (*Plugin, error) {
	configuration, err := load.LoadFromReader(config)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, fmt.Errorf("the checks of the standards: %w", err)
	}
	recorder := securitymetrics.NewPrometheusRecorder(apiVersion)
	if err := register(recorder, registerer); err != nil {
		return nil, err
	}
	a := &library.Admission{
		Configuration: configuration, Evaluator: evaluator, Metrics: recorder, PodSpecExtractor: library.DefaultPodSpecExtractor{},
		NamespaceGetter: &namespaces{state: s}, PodLister: pods{s},
	}
	if err := a.CompleteConfiguration(); err != nil {
		return nil, fmt.Errorf("configuration error: %w", err)
	}
	if err := a.ValidateConfiguration(); err != nil {
		return nil, fmt.Errorf("invalid: %w", err)
	}
	return &Plugin{a}, nil
}

// register makes the metrics, which count nothing before that, and registers them.
func register(recorder *securitymetrics.PrometheusRecorder, registerer prometheus.Registerer) (err error) {
	recorder.MustRegister(func(all ...metrics.Registerable) {
		for _, m := range all {
			m.Create(nil)
			if registerer != nil {
				err = errors.Join(err, registerer.Register(m))
			}
		}
	})
	return err
}

// workloads are the resources with a template of Pods.
var workloads = map[schema.GroupResource]bool{
	{Resource: "replicationcontrollers"}:      true,
	{Resource: "podtemplates"}:                true,
	{Group: "apps", Resource: "replicasets"}:  true,
	{Group: "apps", Resource: "deployments"}:  true,
	{Group: "apps", Resource: "statefulsets"}: true,
	{Group: "apps", Resource: "daemonsets"}:   true,
	{Group: "batch", Resource: "jobs"}:        true,
	{Group: "batch", Resource: "cronjobs"}:    true,
}

// ignored are the subresources of Pods that change nothing of what the standards are about.
var ignored = map[string]bool{
	"exec": true, "attach": true, "binding": true, "eviction": true, "log": true, "portforward": true, "proxy": true, "status": true,
}

// Handles implements admission.Plugin.
func (*Plugin) Handles(a *admission.Attributes) bool {
	if a.Operation != admission.Create && a.Operation != admission.Update {
		return false
	}
	gr := a.Resource.GroupResource()
	switch {
	case gr.Group != "" && gr.Group != "apps" && gr.Group != "batch":
		return false // most, without a look into a map
	case gr == schema.GroupResource{Resource: "pods"}:
		return !ignored[a.Subresource]
	case gr == schema.GroupResource{Resource: "namespaces"}:
		return a.Subresource == ""
	}
	return a.Subresource == "" && workloads[gr]
}

// Validate implements admission.Validator.
func (p *Plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	asked := &attributes{Attributes: a}
	answer := p.library.Validate(ctx, asked)
	for _, w := range answer.Warnings {
		a.Warn(w)
	}
	if a.Told != nil {
		// The keys are the library's: there is nothing to check about them at every Pod.
		for key, value := range answer.AuditAnnotations {
			a.Told.Annotate(api.AuditAnnotationPrefix+key, value, audit.LevelMetadata)
		}
	}
	if answer.Allowed {
		return nil
	}
	return refusal(a, answer)
}

// refusal is a Forbidden, with what the library says about it.
func refusal(a *admission.Attributes, answer *admissionv1.AdmissionResponse) error {
	//lint:ignore ST1005 the words are upstream's
	err := upstream.NewForbidden(a, errors.New("Not allowed by PodSecurity"))
	var status *apierrors.StatusError
	if answer.Result == nil || !errors.As(err, &status) {
		return err
	}
	said := answer.Result
	if said.Message != "" {
		status.ErrStatus.Message = said.Message
	}
	if said.Reason != "" {
		status.ErrStatus.Reason = said.Reason
	}
	if said.Details != nil {
		status.ErrStatus.Details = said.Details
	}
	if said.Code != 0 {
		status.ErrStatus.Code = said.Code
	}
	return status
}
