package webhook

import (
	"github.com/quorate/quorate/apiserver/admission/answers"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// bounded makes the answers to each client of a webhook bounded ones.
func bounded(inner webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
	limits := new(answers.Limits)
	wrapped := func(c *rest.Config, err error) (*rest.Config, error) {
		if err == nil {
			c.Wrap(limits.Transport)
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
