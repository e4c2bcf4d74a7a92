package plugins

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/upstream"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/plugin/pkg/admission/podnodeselector"
	"sigs.k8s.io/yaml"
)

// server is what upstream's plugins ask of this one.
func (e *env) server() *upstream.Server {
	shown := &upstream.Informers{}
	e.namespaces.Show(shown)
	upstream.Show(shown, func(name string) (*corev1.Node, error) {
		return state.Get[corev1.Node](e.state, corev1.Resource("nodes"), "", name)
	}, nil, nil)
	show[storagev1.StorageClass](e, shown, storagev1.Resource("storageclasses"))
	show[networkingv1.IngressClass](e, shown, networkingv1.Resource("ingressclasses"))
	classes := show[nodev1.RuntimeClass](e, shown, nodev1.Resource("runtimeclasses"))
	return &upstream.Server{
		Informers: shown, Authorizer: e.Authorizer, Kinds: e.Kinds,
		Client: &upstream.Client{
			Namespaces: e.namespaces, CreateNamespace: e.CreateNamespace,
			RuntimeClass: func(name string) *nodev1.RuntimeClass { return classes.Get("", name) },
		},
	}
}

// show makes the objects of a small table visible to upstream's plugins.
func show[T any](e *env, to *upstream.Informers, gr schema.GroupResource) *state.Objects[T] {
	all := state.All[T](e.state, gr, e.Log)
	upstream.Show(to, func(name string) (*T, error) { return all.Get("", name), nil }, all.List, nil)
	return all
}

// ofUpstream makes a plugin of Kubernetes itself.
func ofUpstream(register upstream.Register, about upstream.About) func(*env, io.Reader) (admission.Plugin, error) {
	return func(e *env, config io.Reader) (admission.Plugin, error) {
		return e.upstream.Plugin(register, config, about)
	}
}

// about are the writes of some resources.
func about(resources ...string) upstream.About { return upstream.About{Resources: resources} }

// reading is about with tables that a plugin reads.
func reading(rules uint32, resources ...string) upstream.About {
	return upstream.About{Resources: resources, Rules: admission.Rules(rules)}
}

// classed are the Pods that RuntimeClass has something to say of.
var classed = upstream.About{
	Resources: []string{"pods"}, Rules: admission.Rules(proto.RuleRuntimeClasses),
	If: func(a *admission.Attributes) bool {
		spec := tree.As(a.Object["spec"])
		return spec["runtimeClassName"] != nil || spec["overhead"] != nil
	},
}

// resized are the Pods that run, for which something else is asked than before.
var resized = upstream.About{Resources: []string{"pods/resize"}, If: func(a *admission.Attributes) bool {
	return tree.Text(tree.As(a.Object["spec"]), "nodeName") != "" &&
		!tree.Equal(tree.Field(a.Old, "metadata", "generation"), tree.Field(a.Object, "metadata", "generation"))
}}

// owned are the objects that have an owner, or had one.
var owned = upstream.About{If: func(a *admission.Attributes) bool {
	return hasOwner(a.Object) || hasOwner(a.Old)
}}

func hasOwner(obj tree.Object) bool {
	return len(tree.List(tree.Field(obj, "metadata", "ownerReferences"))) > 0
}

// rated are the Events that EventRateLimit counts. It keeps thousands of keys that it makes of what
// they say.
var rated = upstream.About{
	Resources: []string{"events"}, If: func(a *admission.Attributes) bool { return !a.DryRun },
	Before: func(obj runtime.Object) {
		e := obj.(*core.Event)
		about := &e.InvolvedObject
		for _, text := range []*string{&e.Source.Component, &e.Source.Host, &about.Kind, &about.Namespace, &about.Name, (*string)(&about.UID), &about.APIVersion} {
			if len(*text) > maxKeyPart {
				sum := sha256.Sum256([]byte(*text))
				*text = hex.EncodeToString(sum[:])
			}
		}
	},
}

// maxKeyPart is how long a text may be that stays in a key of EventRateLimit: the longest name.
const maxKeyPart = 253

// podNodeSelector is PodNodeSelector with a configuration that can be read: upstream's function
// does not end if it cannot.
func podNodeSelector(e *env, config io.Reader) (admission.Plugin, error) {
	if config != nil {
		raw, err := io.ReadAll(config)
		if err != nil {
			return nil, err
		}
		if err := checkNodeSelectors(raw); err != nil {
			return nil, fmt.Errorf("podNodeSelectorPluginConfig: %w", err)
		}
		config = bytes.NewReader(raw)
	}
	return ofUpstream(podnodeselector.Register, about("pods"))(e, config)
}

func checkNodeSelectors(raw []byte) error {
	var file struct {
		Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		return err
	}
	var errs []error
	for name, selector := range file.Selectors {
		if _, err := labels.ConvertSelectorToLabelsMap(selector); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
