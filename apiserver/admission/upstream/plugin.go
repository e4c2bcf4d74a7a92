package upstream

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/access/auth"
	ours "github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/kinds"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/featuregate"
)

// Server is what upstream's plugins ask of the server in which they run.
type Server struct {
	Informers  *Informers
	Client     kubernetes.Interface
	Authorizer auth.Authorizer
	Kinds      func() *kinds.Registry
}

// Register registers a plugin of upstream under its name, as each package of one does.
type Register func(*admission.Plugins)

// About says of which writes a plugin of upstream has something to say, and how it is asked.
type About struct {
	// Resources are those that it knows, "" for the core group's: "pods", "ingresses.networking.k8s.io",
	// "certificatesigningrequests.certificates.k8s.io/status". It decides on their internal types. Empty:
	// it knows all, and decides on their metadata alone.
	Resources []string
	// If leaves out writes of which the plugin would have nothing to say, so that the object need not be decoded.
	If func(*ours.Attributes) bool
	// Rules are the tables that it reads through the informers.
	Rules ours.Rules
	// Before changes the object before the plugin sees it. The plugin may not be a mutator.
	Before func(runtime.Object)
}

// Plugin makes a plugin of upstream one of this server. config is its part of the configuration
// file, nil if there is none. Errors: those of the plugin.
func (s *Server) Plugin(register Register, config io.Reader, about About) (ours.Plugin, error) {
	var all admission.Plugins
	register(&all)
	made, err := all.InitPlugin(all.Registered()[0], config, initializer.New(
		s.Client, nil, s.Informers, Authorizer(s.Authorizer), allOn{}, nil, nil, mapper{kinds: s.Kinds}))
	if err != nil {
		return nil, err
	}
	p := plugin{About: about, Interface: made}
	p.admits, _ = made.(admission.MutationInterface)
	p.validates, _ = made.(admission.ValidationInterface)
	switch {
	case p.validates == nil:
		return mutator{p}, nil
	case p.admits == nil:
		return validator{p}, nil
	}
	return both{mutator{p}}, nil
}

// allOn has all feature gates on: a plugin is asked only about kinds that are served, and a kind whose
// gate is off is not.
type allOn struct{ featuregate.FeatureGate }

func (allOn) Enabled(featuregate.Feature) bool { return true }

// plugin is one of upstream. Which methods this server calls says its type: mutator, validator or both.
type plugin struct {
	About
	admission.Interface
	admits    admission.MutationInterface
	validates admission.ValidationInterface
}

type (
	mutator   struct{ plugin }
	validator struct{ plugin }
	both      struct{ mutator }
)

// Handles implements admission.Plugin.
func (p plugin) Handles(a *ours.Attributes) bool {
	return p.knows(a) && p.Interface.Handles(a.Operation) && (p.If == nil || p.If(a))
}

func (p plugin) knows(a *ours.Attributes) bool {
	if len(p.Resources) == 0 {
		return true
	}
	return slices.ContainsFunc(p.Resources, func(known string) bool { return isResource(known, a) })
}

// isResource reports whether a write is of "resource.group/subresource", without making that text.
func isResource(known string, a *ours.Attributes) bool {
	rest, ok := strings.CutPrefix(known, a.Resource.Resource)
	if !ok {
		return false
	}
	if a.Resource.Group != "" {
		if rest, ok = strings.CutPrefix(rest, "."); !ok {
			return false
		}
		if rest, ok = strings.CutPrefix(rest, a.Resource.Group); !ok {
			return false
		}
	}
	if a.Subresource == "" {
		return rest == ""
	}
	rest, ok = strings.CutPrefix(rest, "/")
	return ok && rest == a.Subresource
}

// Admit implements admission.Mutator.
func (p mutator) Admit(ctx context.Context, a *ours.Attributes) error {
	seen, err := p.see(a)
	if err != nil {
		return err
	}
	if len(p.Resources) == 0 || seen.obj == nil {
		return explained(p.admits.Admit(ctx, seen, a.Interfaces)) // it cannot change anything
	}
	before := seen.obj.DeepCopyObject()
	if err := p.admits.Admit(ctx, seen, a.Interfaces); err != nil {
		return explained(err)
	}
	was, err := external(before, a.Kind.GroupVersion())
	if err != nil {
		return err
	}
	now, err := external(seen.obj, a.Kind.GroupVersion())
	if err != nil {
		return err
	}
	followMap(a.Object, was, now)
	return nil
}

// Validate implements admission.Validator.
func (p validator) Validate(ctx context.Context, a *ours.Attributes) error { return p.validate(ctx, a) }

// Validate implements admission.Validator.
func (p both) Validate(ctx context.Context, a *ours.Attributes) error { return p.validate(ctx, a) }

func (p plugin) validate(ctx context.Context, a *ours.Attributes) error {
	seen, err := p.see(a)
	if err != nil {
		return err
	}
	if p.Before != nil && seen.obj != nil {
		p.Before(seen.obj)
	}
	return explained(p.validates.Validate(ctx, seen, a.Interfaces))
}

// seen are the attributes of a write with typed objects.
type seen struct {
	*ours.Attributes
	obj, old runtime.Object
}

func (s *seen) GetObject() runtime.Object    { return s.obj }
func (s *seen) GetOldObject() runtime.Object { return s.old }

// see decodes what the plugin decides on. It does so before the plugin asks, because plugins take
// for granted that an object is of its type.
func (p plugin) see(a *ours.Attributes) (*seen, error) {
	a.Consulted(p.Rules)
	if len(p.Resources) == 0 {
		return &seen{a, a.GetObject(), a.GetOldObject()}, nil
	}
	s := &seen{Attributes: a}
	var err error
	if a.Object != nil {
		if s.obj, err = internal(a.Object, a.Kind); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
	}
	if a.Old != nil {
		if s.old, err = internal(a.Old, a.Kind); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
	}
	return s, nil
}

// explained is a plugin's error as upstream's server answers it.
func explained(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return ours.Unexplained(err)
}
