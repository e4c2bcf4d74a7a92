// Package podnodeselector is upstream's plugin PodNodeSelector: a namespace says on which nodes
// its Pods run, by an annotation, and the configuration what they may select at all.
package podnodeselector

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

const (
	// annotation of a namespace with its node selector.
	annotation = "scheduler.alpha.kubernetes.io/node-selector"
	// standard is, in the configuration, the selector of namespaces without the annotation.
	standard = "clusterDefaultNodeSelector"
)

// Plugin merges node selectors.
type Plugin struct {
	state     *state.State
	selectors map[string]string // what Pods of a namespace may select; and standard
}

// New returns the plugin. config is nil, or YAML: podNodeSelectorPluginConfig with a selector for each
// namespace, and clusterDefaultNodeSelector. Errors: it cannot be read.
func New(s *state.State, config io.Reader) (*Plugin, error) {
	var file struct {
		Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
	}
	if config != nil {
		raw, err := io.ReadAll(config)
		if err == nil {
			err = yaml.Unmarshal(raw, &file)
		}
		if err != nil {
			return nil, fmt.Errorf("read podNodeSelectorPluginConfig: %w", err)
		}
	}
	for name, selector := range file.Selectors {
		if _, err := labels.ConvertSelectorToLabelsMap(selector); err != nil {
			return nil, fmt.Errorf("podNodeSelectorPluginConfig: %s: %w", name, err)
		}
	}
	return &Plugin{s, file.Selectors}, nil
}

// Handles implements admission.Plugin.
func (*Plugin) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Create && a.Is("", "pods")
}

// Admit implements admission.Mutator.
func (p *Plugin) Admit(_ context.Context, a *admission.Attributes) error {
	of, err := p.ofNamespace(a.Namespace)
	if err != nil {
		return err
	}
	spec := tree.Clone(a.Object["spec"])
	has := selector(spec)
	if labels.Conflicts(of, has) {
		return forbid(a, errConflict)
	}
	if merged := labels.Merge(of, has); len(merged) > len(has) {
		out := tree.Object{}
		for k, v := range merged {
			out[k] = v
		}
		spec["nodeSelector"] = out
		a.Object["spec"] = spec
	}
	return p.check(a, of)
}

// Validate implements admission.Validator.
func (p *Plugin) Validate(_ context.Context, a *admission.Attributes) error {
	of, err := p.ofNamespace(a.Namespace)
	if err != nil {
		return err
	}
	return p.check(a, of)
}

// check refuses a Pod whose selector is not that of its namespace, or is more than it may be.
func (p *Plugin) check(a *admission.Attributes, of labels.Set) error {
	has := selector(tree.As(a.Object["spec"]))
	if labels.Conflicts(of, has) {
		return forbid(a, errConflict)
	}
	allowed, err := labels.ConvertSelectorToLabelsMap(p.selectors[a.Namespace])
	if err != nil {
		return admission.Unexplained(err)
	}
	for k, v := range has {
		if want, ok := allowed[k]; len(allowed) > 0 && (!ok || want != v) {
			return forbid(a, errNotAllowed)
		}
	}
	return nil
}

var (
	errConflict   = errors.New("pod node label selector conflicts with its namespace node label selector")
	errNotAllowed = errors.New("pod node label selector labels conflict with its namespace whitelist")
)

func forbid(a *admission.Attributes, err error) error {
	return apierrors.NewForbidden(a.Resource.GroupResource(), tree.Text(a.Meta(), "name"), err)
}

func selector(spec tree.Object) labels.Set {
	out := labels.Set{}
	for k, v := range tree.As(spec["nodeSelector"]) {
		out[k], _ = v.(string)
	}
	return out
}

// ofNamespace is the selector that a namespace has. Errors: it is none, or there is no such namespace.
func (p *Plugin) ofNamespace(name string) (labels.Set, error) {
	ns, err := state.Get[corev1.Namespace](p.state, corev1.Resource("namespaces"), "", name)
	switch {
	case err != nil:
		return nil, apierrors.NewInternalError(err)
	case ns == nil:
		return nil, apierrors.NewInternalError(fmt.Errorf("namespace %s does not exist", name))
	}
	text, ok := ns.Annotations[annotation]
	if !ok {
		text = p.selectors[standard]
	}
	set, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return nil, admission.Unexplained(err)
	}
	return set, nil
}
