// Package imagepolicy is the plugin ImagePolicyWebhook: it asks a backend, by an ImageReview of
// imagepolicy.k8s.io/v1alpha1, whether the images of a Pod may run. It is off by default, and
// needs a configuration.
package imagepolicy

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/answers"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/slots"
	"k8s.io/api/imagepolicy/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

const (
	// auditPrefix is that of all annotations of audit events.
	auditPrefix = "imagepolicywebhook.image-policy.k8s.io/"
	// maxKept is how many answers are kept, and maxKeptBytes how large one of them may be.
	maxKept      = 1024
	maxKeptBytes = 64 << 10
)

type plugin struct {
	settings *settings
	backend  *webhook.GenericWebhook
	// kept are ImageReviewStatus, by the hash of what was asked: Pods may be large.
	kept *cache.LRUExpireCache
	log  *slog.Logger
}

// New returns the plugin. config has its settings, in upstream's form. Errors: there is none, or
// it cannot be used, or the kubeconfig that it names.
func New(config io.Reader, log *slog.Logger) (admission.Validator, error) {
	return newPlugin(config, log)
}

func newPlugin(config io.Reader, log *slog.Logger) (*plugin, error) {
	s, err := load(config)
	if err != nil {
		return nil, err
	}
	client, err := webhook.LoadKubeconfig(s.KubeConfigFile, nil)
	if err != nil {
		return nil, err
	}
	answers.OwnTransport(client)
	client.Wrap(answers.NewLimits().Transport)
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	backend, err := webhook.NewGenericWebhook(scheme, serializer.NewCodecFactory(scheme), client,
		[]schema.GroupVersion{v1alpha1.SchemeGroupVersion}, webhook.DefaultRetryBackoffWithInitialDelay(s.RetryBackoff))
	if err != nil {
		return nil, err
	}
	return &plugin{s, backend, cache.NewLRUExpireCache(maxKept), log}, nil
}

// Handles implements admission.Plugin.
func (p *plugin) Handles(a *admission.Attributes) bool {
	return a.Resource.Resource == "pods" && a.Resource.Group == "" && (a.Subresource == "" || a.Subresource == "ephemeralcontainers") &&
		(a.Operation == admission.Create || a.Operation == admission.Update)
}

// Validate implements admission.Validator.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	spec := v1alpha1.ImageReviewSpec{Namespace: a.GetNamespace(), Annotations: annotations(a), Containers: images(a)}
	answer, err := p.ask(ctx, spec)
	if err != nil {
		if !p.settings.DefaultAllow {
			return a.Forbidden(err)
		}
		// Upstream also annotates a copy of the Pod, which nobody sees.
		p.annotate(a, map[string]string{"failed-open": "true"})
		return nil
	}
	p.annotate(a, answer.AuditAnnotations)
	switch {
	case answer.Allowed:
		return nil
	case answer.Reason != "":
		return a.Forbidden(fmt.Errorf("image policy webhook backend denied one or more images: %s", answer.Reason))
	}
	return a.Forbidden(errors.New("one or more images rejected by webhook backend"))
}

// images are those of a Pod, in upstream's order.
func images(a *admission.Attributes) (out []v1alpha1.ImageReviewContainerSpec) {
	fields := []string{"containers", "initContainers"}
	if a.Subresource != "" {
		fields = []string{"ephemeralContainers"}
	}
	spec := tree.As(a.Object["spec"])
	for _, field := range fields {
		for _, c := range tree.List(spec[field]) {
			out = append(out, v1alpha1.ImageReviewContainerSpec{Image: tree.Text(tree.As(c), "image")})
		}
	}
	return out
}

// annotations are those of a Pod that are for the backend.
func annotations(a *admission.Attributes) map[string]string {
	out := map[string]string{}
	for k, v := range tree.As(a.Meta()["annotations"]) {
		if text, ok := v.(string); ok && strings.Contains(k, ".image-policy.k8s.io/") {
			out[k] = text
		}
	}
	return out
}

// ask returns what the backend says, or has said a while ago. Errors: it does not say.
func (p *plugin) ask(ctx context.Context, spec v1alpha1.ImageReviewSpec) (*v1alpha1.ImageReviewStatus, error) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(raw)
	if kept, ok := p.kept.Get(key); ok {
		return kept.(*v1alpha1.ImageReviewStatus), nil
	}
	review := &v1alpha1.ImageReview{Spec: spec}
	// What several tries answer is bounded together.
	ctx, done := answers.Charged(answers.Alone(answers.WithDecision(ctx)))
	defer done()
	over := slots.Waiting(ctx)
	result := p.backend.WithExponentialBackoff(ctx, func() rest.Result { return p.backend.RestClient.Post().Body(review).Do(ctx) })
	over()
	if err := result.Error(); err != nil {
		return nil, err
	}
	code := 0
	if result.StatusCode(&code); code < 200 || code >= 300 {
		return nil, fmt.Errorf("Error contacting webhook: %d", code) //lint:ignore ST1005 upstream's text
	}
	if err := result.Into(review); err != nil {
		return nil, err
	}
	status := review.Status // a copy: what is kept must not hold the images' names
	p.keep(key, &status)
	return &status, nil
}

// keep keeps an answer for as long as the settings say.
func (p *plugin) keep(key any, answer *v1alpha1.ImageReviewStatus) {
	ttl := p.settings.DenyTTL
	if answer.Allowed {
		ttl = p.settings.AllowTTL
	}
	if ttl > 0 && answer.Size() <= maxKeptBytes {
		p.kept.Add(key, answer, ttl)
	}
}

// annotate adds annotations to the audit event.
func (p *plugin) annotate(a *admission.Attributes, notes map[string]string) {
	if err := admission.AddAnnotations(a, auditPrefix, notes); err != nil {
		p.log.Warn("failed to set audit annotations of an image policy backend", "err", err)
	}
}
