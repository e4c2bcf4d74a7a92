package webhook

import (
	"net/http"

	"github.com/quorate/quorate/apiserver/admission/answers"
	"github.com/quorate/quorate/apiserver/admission/webhook/direct"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// bounded makes the answers to each client of a webhook bounded ones, and its usual calls direct.
func bounded(inner webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
	limits := new(answers.Limits)
	wrapped := func(c *rest.Config, err error) (*rest.Config, error) {
		if err == nil {
			c.Wrap(func(t http.RoundTripper) http.RoundTripper { return direct.Transport(t, limits) })
		}
		return c, err
	}
	return &webhook.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc: func(hostPort string) (*rest.Config, error) { return wrapped(inner.ClientConfigFor(hostPort)) },
		ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
			return wrapped(inner.ClientConfigForService(name, namespace, port))
		},
	}
}
