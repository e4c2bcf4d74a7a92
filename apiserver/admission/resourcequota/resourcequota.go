// Package resourcequota is the plugin ResourceQuota: what a namespace's quotas do not allow is
// refused, with what was requested, what is used and what is the limit.
//
// It decides on what this node sees, and has the state machine check the same once more where
// the write is applied (Attributes.Limit): there it is exact, on whichever nodes others write
// at the same time. Both refusals are worded here, with the numbers of where they were made.
//
// The types to know:
//
//   - plugin is the plugin; request is one write that it decides on.
//   - rule is a quota, as writes are held against it.
package resourcequota

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/quota"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	config "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
)

var quotas = schema.GroupResource{Resource: "resourcequotas"}

type plugin struct {
	state  *state.State
	quotas *state.Objects[rule]
	// limited is what may only be used where a quota covers it.
	limited []config.LimitedResource
	now     func() time.Time
}

// New returns the plugin. config is a ResourceQuotaConfiguration of apiserver.config.k8s.io/v1, nil if
// there is none. Errors: it cannot be read, or is invalid.
func New(s *state.State, config io.Reader, log *slog.Logger) (admission.Validator, error) {
	limited, err := readConfig(config)
	if err != nil {
		return nil, err
	}
	return &plugin{state: s, quotas: state.All[rule](s, quotas, log), limited: limited, now: time.Now}, nil
}

// Handles implements admission.Plugin. Objects of every kind are counted when they are
// created; few use more or less later.
func (p *plugin) Handles(a *admission.Attributes) bool {
	if a.Namespace == "" || a.Operation != admission.Create && a.Operation != admission.Update {
		return false
	}
	switch gr := a.Resource.GroupResource(); gr {
	case quota.Pods:
		return a.Subresource == "" || a.Subresource == "resize" && a.Operation == admission.Update
	case quota.Services, quota.VolumeClaims, quota.ResourceClaims:
		return a.Subresource == ""
	default:
		return a.Subresource == "" && a.Operation == admission.Create && gr.Resource != "namespaces" && !quota.Ignored(gr)
	}
}

// Validate implements admission.Validator.
func (p *plugin) Validate(_ context.Context, a *admission.Attributes) error {
	gr := a.Resource.GroupResource()
	if gr == quota.Pods && a.Subresource == "" && a.Operation == admission.Update && deadline(a.Object) == deadline(a.Old) {
		return nil // nothing that is counted can change but by resize
	}
	a.Limit(p)
	rules := p.quotas.In(a.Namespace)
	if len(p.limited) > 0 || gr == quota.Pods && !specifiesAll(a.Object) {
		// Only here does it matter what quotas there are. What they bound the state machine
		// knows by itself, and their status changes too often to name them for nothing.
		a.Consulted(admission.Rules(proto.RuleResourceQuotas))
	}
	if len(rules) == 0 && len(p.limited) == 0 {
		return nil
	}
	return p.requestOf(a, gr).check(rules)
}

// deadline reports whether a Pod ends by itself, which is what scopes call terminating.
func deadline(pod tree.Object) bool {
	n, ok := tree.Int(tree.Field(pod, "spec", "activeDeadlineSeconds"))
	return ok && n >= 0
}
