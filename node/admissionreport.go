package node

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/admission/static"
	"github.com/quorate/quorate/apiserver/admission/suspension"
	"github.com/quorate/quorate/raftstore/mvcc"

	dto "github.com/prometheus/client_model/go"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/component-base/metrics/legacyregistry"
)

// AdmissionReport is what one node knows of the cluster's webhooks and policies.
type AdmissionReport struct {
	Node        string                   `json:"node"`
	Rules       []AdmissionRule          `json:"rules"`
	Suspensions []*suspension.Suspension `json:"suspensions,omitempty"`
}

// AdmissionRule is one webhook or one policy, and what this node has seen of it since its start.
type AdmissionRule struct {
	Resource      string `json:"resource"` // one of suspension.Kinds
	Configuration string `json:"configuration"`
	// Webhook is its name in the configuration; empty for policies.
	Webhook string `json:"webhook,omitempty"`
	// File says that it is from a file of this node.
	File           bool   `json:"file,omitempty"`
	FailurePolicy  string `json:"failurePolicy"`
	TimeoutSeconds int32  `json:"timeoutSeconds,omitempty"`
	// Calls of a validating policy are the checks that did not just admit a write, of a mutating one
	// the mutations. Failures are calls without an answer, or with one that is none; FailedOpen those
	// of them that let a write through. Webhooks of the same name in several configurations are
	// counted together.
	Calls      uint64 `json:"calls"`
	Rejections uint64 `json:"rejections"`
	Failures   uint64 `json:"failures"`
	FailedOpen uint64 `json:"failedOpen"`
	// MeanMS and P99MS are of the calls' times, in milliseconds; the second is a bound of the
	// histogram's bucket.
	MeanMS         float64    `json:"meanMS"`
	P99MS          float64    `json:"p99MS"`
	SuspendedUntil *time.Time `json:"suspendedUntil,omitempty"`
}

func (a *admissionAPI) report() (AdmissionReport, error) {
	out := AdmissionReport{Node: a.node, Rules: []AdmissionRule{}, Suspensions: a.suspensions.Active()}
	state := a.store.State()
	for _, resource := range suspension.Kinds {
		t := state.Table(resource + ".admissionregistration.k8s.io")
		if t == nil {
			continue
		}
		page, err := t.Range(mvcc.Query{At: state.Applied()})
		if err != nil {
			return out, fmt.Errorf("list %s: %w", resource, err)
		}
		for _, v := range page.Versions {
			out.Rules = append(out.Rules, rulesOf(resource, v)...)
		}
	}
	for _, list := range a.fromFiles {
		for _, r := range list() {
			out.Rules = append(out.Rules, AdmissionRule{
				Resource: r.Resource, Configuration: r.Configuration, Webhook: r.Webhook, File: true,
				FailurePolicy: r.FailurePolicy, TimeoutSeconds: r.TimeoutSeconds,
			})
		}
	}
	seen, err := readAdmissionMetrics()
	if err != nil {
		return out, err
	}
	for i := range out.Rules {
		r := &out.Rules[i]
		seen.fill(r)
		for _, s := range out.Suspensions {
			if !r.File && s.Resource == r.Resource && s.Name == r.Configuration {
				r.SuspendedUntil = &s.Until
			}
		}
	}
	return out, nil
}

// rulesOf are the webhooks of a configuration, or a policy. Both kinds of each have the same
// fields, as far as they are read here.
func rulesOf(resource string, v *mvcc.Version) []AdmissionRule {
	var obj struct {
		Webhooks []struct {
			Name           string                         `json:"name"`
			FailurePolicy  *admissionv1.FailurePolicyType `json:"failurePolicy"`
			TimeoutSeconds *int32                         `json:"timeoutSeconds"`
		} `json:"webhooks"`
		Spec struct {
			FailurePolicy *admissionv1.FailurePolicyType `json:"failurePolicy"`
		} `json:"spec"`
	}
	whole := map[string]any{
		"validatingwebhookconfigurations": &admissionv1.ValidatingWebhookConfiguration{}, "mutatingwebhookconfigurations": &admissionv1.MutatingWebhookConfiguration{},
		"validatingadmissionpolicies": &admissionv1.ValidatingAdmissionPolicy{}, "mutatingadmissionpolicies": &admissionv1.MutatingAdmissionPolicy{},
	}[resource]
	if json.Unmarshal(v.Value(), &obj) != nil || json.Unmarshal(v.Value(), whole) != nil {
		return []AdmissionRule{{Resource: resource, Configuration: v.Key, FailurePolicy: "cannot be read"}}
	}
	if strings.HasSuffix(resource, "policies") {
		return []AdmissionRule{{Resource: resource, Configuration: v.Key, FailurePolicy: static.FailurePolicy(obj.Spec.FailurePolicy)}}
	}
	var out []AdmissionRule
	for _, w := range obj.Webhooks {
		r := AdmissionRule{Resource: resource, Configuration: v.Key, Webhook: w.Name, FailurePolicy: static.FailurePolicy(w.FailurePolicy)}
		if w.TimeoutSeconds != nil {
			r.TimeoutSeconds = *w.TimeoutSeconds
		}
		out = append(out, r)
	}
	return out
}

// seen are the metrics of upstream's plugins, by their names without the prefix apiserver_.
type seen map[string]*dto.MetricFamily

func readAdmissionMetrics() (seen, error) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return nil, fmt.Errorf("metrics of admission: %w", err)
	}
	out := seen{}
	for _, f := range families {
		if name, ok := strings.CutPrefix(f.GetName(), "apiserver_"); ok && strings.Contains(name, "admission") {
			out[name] = f
		}
	}
	return out, nil
}

// fill adds what was counted of a rule.
func (s seen) fill(r *AdmissionRule) {
	switch r.Resource {
	case "validatingwebhookconfigurations":
		s.fillWebhook(r, "validating")
	case "mutatingwebhookconfigurations":
		s.fillWebhook(r, "admit")
	case "validatingadmissionpolicies":
		s.fillPolicy(r, "validating")
	case "mutatingadmissionpolicies":
		s.fillPolicy(r, "mutating")
	}
}

func (s seen) fillWebhook(r *AdmissionRule, kind string) {
	mine := func(m *dto.Metric) bool { return label(m, "name") == r.Webhook && label(m, "type") == kind }
	var times histogram
	for _, m := range s["admission_webhook_admission_duration_seconds"].GetMetric() {
		if mine(m) {
			times.add(m.GetHistogram())
		}
	}
	r.Calls, r.MeanMS, r.P99MS = times.count, times.mean(), times.quantile(0.99)
	for _, m := range s["admission_webhook_rejection_count"].GetMetric() {
		switch {
		case !mine(m):
		case label(m, "error_type") == "no_error":
			r.Rejections += uint64(m.GetCounter().GetValue())
		default:
			r.Failures += uint64(m.GetCounter().GetValue())
		}
	}
	for _, m := range s["admission_webhook_fail_open_count"].GetMetric() {
		if mine(m) {
			r.FailedOpen += uint64(m.GetCounter().GetValue())
			r.Failures += uint64(m.GetCounter().GetValue())
		}
	}
}

func (s seen) fillPolicy(r *AdmissionRule, kind string) {
	var times histogram
	for _, m := range s[kind+"_admission_policy_check_duration_seconds"].GetMetric() {
		if label(m, "policy") == r.Configuration {
			times.add(m.GetHistogram())
		}
	}
	r.MeanMS, r.P99MS = times.mean(), times.quantile(0.99)
	for _, m := range s[kind+"_admission_policy_check_total"].GetMetric() {
		if label(m, "policy") != r.Configuration {
			continue
		}
		n := uint64(m.GetCounter().GetValue())
		r.Calls += n
		why, action := label(m, "error_type"), label(m, "enforcement_action")
		if action == "deny" {
			r.Rejections += n // also what has no error type of its own: upstream's is invalid_error
		}
		switch {
		case action == "allow" && why != "no_error":
			r.Failures += n
			r.FailedOpen += n
		case why == "compile_error", why == "out_of_budget":
			r.Failures += n
		}
	}
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// histogram is the sum of several.
type histogram struct {
	count   uint64
	sum     float64 // seconds
	buckets map[float64]uint64
}

func (h *histogram) add(m *dto.Histogram) {
	h.count += m.GetSampleCount()
	h.sum += m.GetSampleSum()
	if h.buckets == nil {
		h.buckets = map[float64]uint64{}
	}
	for _, b := range m.GetBucket() {
		h.buckets[b.GetUpperBound()] += b.GetCumulativeCount()
	}
}

// mean is in milliseconds.
func (h *histogram) mean() float64 {
	if h.count == 0 {
		return 0
	}
	return 1000 * h.sum / float64(h.count)
}

// quantile is the bound of the bucket that has it, in milliseconds; above the last one its bound.
func (h *histogram) quantile(q float64) float64 {
	if h.count == 0 {
		return 0
	}
	bounds := make([]float64, 0, len(h.buckets))
	for b := range h.buckets {
		bounds = append(bounds, b)
	}
	slices.SortFunc(bounds, cmp.Compare[float64])
	for _, b := range bounds {
		if float64(h.buckets[b]) >= q*float64(h.count) {
			return 1000 * b
		}
	}
	return 1000 * bounds[len(bounds)-1]
}
