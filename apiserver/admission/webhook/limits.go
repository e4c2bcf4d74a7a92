package webhook

import (
	"context"
	"net"
	"net/http"

	"github.com/quorate/quorate/apiserver/admission/answers"
	"github.com/quorate/quorate/apiserver/admission/webhook/direct"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// wrapped makes the answers to each client of a webhook bounded ones, its usual calls direct, and its
// connections those of egress.
func (cfg *Config) wrapped(inner webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
	limits := answers.NewLimits()
	wrap := func(c *rest.Config, dial func(ctx context.Context, network, address string) (net.Conn, error), err error) (*rest.Config, error) {
		if err != nil {
			return nil, err
		}
		answers.OwnTransport(c)
		c.Wrap(func(t http.RoundTripper) http.RoundTripper { return direct.Transport(t, limits) })
		if dial != nil {
			c.Dial = dial
		}
		return c, nil
	}
	return &webhook.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc: func(hostPort string) (*rest.Config, error) {
			c, err := inner.ClientConfigFor(hostPort)
			return wrap(c, cfg.DialURL, err)
		},
		ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
			c, err := inner.ClientConfigForService(name, namespace, port)
			return wrap(c, cfg.Dial, err)
		},
	}
}
