package webhook

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/answers"
	"github.com/quorate/quorate/apiserver/admission/static"
	upstreams "github.com/quorate/quorate/apiserver/admission/upstream"
	"github.com/quorate/quorate/apiserver/types/state"
	registration "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/configuration"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/pkg/warning"
)

// Config is what both plugins are made of.
type Config struct {
	// State is this node's state.
	State      *state.State
	Namespaces *upstreams.Namespaces
	Kinds      *upstreams.Kinds
	// Static is how webhooks come from files.
	Static static.Files
	// Resolve returns the address, host:port, of a Service of the cluster.
	Resolve func(ctx context.Context, namespace, name string, port int32) (string, error)
	// Dial connects to Services, and DialURL to what a URL names. Nil: the network of this host.
	Dial, DialURL func(ctx context.Context, network, address string) (net.Conn, error)
	// Suspended reports whether a configuration is not asked at the moment, by its resource and
	// name; Suspensions is how many there may be.
	Suspended   func(resource, name string) bool
	Suspensions func() int
	// Authorizer is asked by match conditions.
	Authorizer auth.Authorizer
	Log        *slog.Logger
}

const (
	group              = "admissionregistration.k8s.io"
	mutatingResource   = "mutatingwebhookconfigurations"
	validatingResource = "validatingwebhookconfigurations"
)

// hooks is what the two plugins have in common.
type hooks struct {
	// api brings upstream's plugin up to date and returns the webhooks of the API.
	api func() *index
	// unreadable is the refusal of all writes while there is a configuration that cannot be decoded.
	unreadable func() error
	// files are the webhooks of files, nil if there are none.
	files *fromFiles
}

// Handles implements admission.Plugin.
func (h *hooks) Handles(a *admission.Attributes) bool {
	// Upstream exempts the configurations themselves, lest one could not be mended; not from
	// webhooks of files, which can be.
	return a.Resource.Group != group && (h.api().concerns(a) || h.unreadable() != nil) || h.files.index().concerns(a)
}

// readable refuses a write that may be one for a configuration that cannot be decoded.
func (h *hooks) readable(a *admission.Attributes) error {
	if a.Resource.Group == group {
		return nil // so it can be mended
	}
	return h.unreadable()
}

// unreadableOf is hooks.unreadable for the configurations of a resource. One that is suspended
// refuses nothing.
func unreadableOf[T any](cfg Config, resource string, all *state.Objects[T]) func() error {
	suspended := func(name string) bool { return cfg.Suspended(resource, name) }
	return func() error { return all.Unreadable(suspended) }
}

// Mutating is MutatingAdmissionWebhook.
type Mutating struct {
	hooks
	plugin *generic.Webhook
}

// Validating is ValidatingAdmissionWebhook.
type Validating struct {
	hooks
	plugin *generic.Webhook
}

// NewMutating returns a Mutating. file is its part of the admission configuration, nil if there
// is none. Errors: the file cannot be read or used.
func NewMutating(cfg Config, file io.Reader) (*Mutating, error) {
	file, dir, err := staticDir(&cfg.Static, file)
	if err != nil {
		return nil, err
	}
	var d mutatingDispatcher
	p, err := generic.NewWebhook(handler(), file, configuration.NewMutatingWebhookConfigurationManager, func(cm *webhookutil.ClientManager) generic.Dispatcher {
		d.cm = cm
		return &d
	})
	if err != nil {
		return nil, err
	}
	d.plugin = p
	return newMutating(cfg, p, dir)
}

// handler is what upstream's plugins handle.
func handler() *upstream.Handler {
	return upstream.NewHandler(upstream.Connect, upstream.Create, upstream.Delete, upstream.Update)
}

// newMutating is NewMutating with upstream's plugin.
func newMutating(cfg Config, p *generic.Webhook, dir string) (*Mutating, error) {
	files := follow(cfg, p, mutatingResource, dir, mutatingFiles)
	all := state.All[registration.MutatingWebhookConfiguration](cfg.State, schema.GroupResource{Group: group, Resource: mutatingResource}, cfg.Log)
	s := sourceOf(cfg, mutatingResource, all.List, func(c *registration.MutatingWebhookConfiguration) (all []hook) {
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			all = append(all, hook{w.Rules, w.MatchPolicy, w.MatchConditions})
		}
		return all
	})
	return &Mutating{hooks{s.update, unreadableOf(cfg, mutatingResource, all), files}, p}, prepare(cfg, p, shown(s))
}

// NewValidating is NewMutating for a Validating.
func NewValidating(cfg Config, file io.Reader) (*Validating, error) {
	file, dir, err := staticDir(&cfg.Static, file)
	if err != nil {
		return nil, err
	}
	var d validatingDispatcher
	p, err := generic.NewWebhook(handler(), file, configuration.NewValidatingWebhookConfigurationManager, func(cm *webhookutil.ClientManager) generic.Dispatcher {
		d.cm = cm
		return &d
	})
	if err != nil {
		return nil, err
	}
	d.plugin = p
	return newValidating(cfg, p, dir)
}

// newValidating is NewValidating with upstream's plugin.
func newValidating(cfg Config, p *generic.Webhook, dir string) (*Validating, error) {
	files := follow(cfg, p, validatingResource, dir, validatingFiles)
	all := state.All[registration.ValidatingWebhookConfiguration](cfg.State, schema.GroupResource{Group: group, Resource: validatingResource}, cfg.Log)
	s := sourceOf(cfg, validatingResource, all.List, func(c *registration.ValidatingWebhookConfiguration) (all []hook) {
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			all = append(all, hook{w.Rules, w.MatchPolicy, w.MatchConditions})
		}
		return all
	})
	return &Validating{hooks{s.update, unreadableOf(cfg, validatingResource, all), files}, p}, prepare(cfg, p, shown(s))
}

// sourceOf are the configurations of a resource.
func sourceOf[P metav1.Object](cfg Config, resource string, list func() []P, webhooks func(P) []hook) *source[P] {
	return &source[P]{
		list: list, webhooks: webhooks, kinds: cfg.Kinds, suspensions: cfg.Suspensions,
		suspended: func(p P) bool { return cfg.Suspended(resource, p.GetName()) },
	}
}

// consult notes what conditions may have asked.
func (h *hooks) consult(a *admission.Attributes) {
	if h.api().asking() || h.files.index().asking() {
		a.ConsultedAllRoles()
	}
}

// prepare gives upstream's plugin what it needs.
func prepare(cfg Config, w *generic.Webhook, configurations *upstreams.Informers) error {
	cfg.Namespaces.Show(configurations)
	w.SetServiceResolver(resolver(cfg.Resolve))
	w.SetAuthenticationInfoResolverWrapper(cfg.wrapped)
	w.SetExternalKubeClientSet(&upstreams.Client{Namespaces: cfg.Namespaces})
	w.SetExternalKubeInformerFactory(configurations)
	w.SetAuthorizer(upstreams.Authorizer(cfg.Authorizer))
	if err := w.ValidateInitialization(); err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	return nil
}

// Admit implements admission.Mutator.
func (m *Mutating) Admit(ctx context.Context, a *admission.Attributes) error {
	if err := m.readable(a); err != nil {
		return err
	}
	m.consult(a)
	return m.plugin.Dispatch(inDecision(ctx, a), of(a), a.Interfaces)
}

// Validate implements admission.Validator.
func (v *Validating) Validate(ctx context.Context, a *admission.Attributes) error {
	if err := v.readable(a); err != nil {
		return err
	}
	v.consult(a)
	return v.plugin.Dispatch(inDecision(ctx, a), of(a), a.Interfaces)
}

// inDecision is the context in which webhooks are asked about one write: their warnings go to the
// client of the request, and their answers are bounded together.
func inDecision(ctx context.Context, a *admission.Attributes) context.Context {
	return warning.WithWarningRecorder(answers.WithDecision(ctx), recorder{a})
}

type recorder struct{ attributes *admission.Attributes }

// AddWarning implements warning.Recorder.
func (r recorder) AddWarning(_, text string) {
	if text != "" {
		r.attributes.Warn(text)
	}
}

// resolver is a function as upstream's ServiceResolver.
type resolver func(ctx context.Context, namespace, name string, port int32) (string, error)

// ResolveEndpoint implements webhook.ServiceResolver.
func (r resolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	at, err := r(context.Background(), namespace, name, port)
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "https", Host: at}, nil
}
