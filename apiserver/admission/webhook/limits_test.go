package webhook

import (
	"net"
	"net/http"
	"testing"

	"github.com/quorate/quorate/apiserver/admission/answers"
	"github.com/quorate/quorate/internal/must"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// unnamed knows nothing of any webhook.
type unnamed struct{}

func (unnamed) ClientConfigFor(string) (*rest.Config, error) { return &rest.Config{}, nil }
func (unnamed) ClientConfigForService(string, string, int) (*rest.Config, error) {
	return &rest.Config{}, nil
}

// TestHeadsAreBounded: each client of a webhook has a transport of its own, which bounds the heads of answers.
func TestHeadsAreBounded(t *testing.T) {
	dial := new(net.Dialer).DialContext
	seen := map[*http.Transport]bool{}
	for name, cfg := range map[string]*Config{
		"directly": {}, "by a proxy": {Dial: dial, DialURL: dial},
	} {
		wrapped := cfg.wrapped(unnamed{})
		for kind, of := range map[string]func() (*rest.Config, error){
			"url":           func() (*rest.Config, error) { return wrapped.ClientConfigFor("a:443") },
			"the same one":  func() (*rest.Config, error) { return wrapped.ClientConfigFor("a:443") },
			"service":       func() (*rest.Config, error) { return wrapped.ClientConfigForService("a", "b", 443) },
			"without HTTPS": func() (*rest.Config, error) { return wrapped.ClientConfigFor("a:80") },
		} {
			c, err := of()
			must.OK(t, err)
			c.Host = "https://a"
			if kind != "without HTTPS" {
				c.TLSClientConfig = rest.TLSClientConfig{ServerName: "a"}
			}
			chain, err := rest.TransportFor(c)
			must.OK(t, err)
			for {
				inner, ok := chain.(utilnet.RoundTripperWrapper)
				if !ok {
					break
				}
				chain = inner.WrappedRoundTripper()
			}
			base := chain.(*http.Transport)
			if seen[base] || base == http.DefaultTransport || base.MaxResponseHeaderBytes != answers.MaxHead {
				t.Errorf("%s, %s: %d bytes, another one's: %v", name, kind, base.MaxResponseHeaderBytes, seen[base])
			}
			seen[base] = true
		}
	}
}
