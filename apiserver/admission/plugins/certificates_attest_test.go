package plugins_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/certificates"
)

// TestCertificatesAttest: who writes a bundle of a signer needs its permission, but for what the garbage
// collector changes.
func TestCertificatesAttest(t *testing.T) {
	bundle := func(signer, text string, meta map[string]any) map[string]any {
		return map[string]any{"metadata": meta, "spec": map[string]any{"signerName": signer, "trustBundle": text}}
	}
	plain := func() map[string]any { return map[string]any{"name": "a", "resourceVersion": "1"} }
	for _, c := range []struct {
		name     string
		now, old map[string]any
		refused  bool
	}{
		{"of no signer", bundle("", "x", plain()), nil, false},
		{"of a signer that is attested for", bundle("example.com/mine", "x", plain()), nil, false},
		{"of another", bundle("example.com/s", "x", plain()), nil, true},
		{"an update of nothing", bundle("example.com/s", "x", plain()), bundle("example.com/s", "x", plain()), false},
		{"of finalizers", bundle("example.com/s", "x", map[string]any{"name": "a", "finalizers": []any{"f"}}), bundle("example.com/s", "x", plain()), false},
		{"of labels", bundle("example.com/s", "x", map[string]any{"name": "a", "labels": map[string]any{"a": "b"}}), bundle("example.com/s", "x", plain()), true},
		{"of the bundle", bundle("example.com/s", "y", plain()), bundle("example.com/s", "x", plain()), true},
	} {
		p := certificates.Attest(auth.AuthorizerFunc(func(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
			if a.Verb == "attest" && a.Resource == "signers" && a.Name == "example.com/mine" {
				return auth.Allow, "", nil
			}
			return auth.NoOpinion, "", nil
		}), slog.New(slog.DiscardHandler))
		a := admission.Attributes{Operation: admission.Create, User: &auth.User{Name: "alice"}, Name: "a", Object: c.now, Old: c.old}
		if c.old != nil {
			a.Operation = admission.Update
		}
		a.Resource.Group, a.Resource.Resource = "certificates.k8s.io", "clustertrustbundles"
		if !p.Handles(&a) {
			t.Fatalf("%s: it is not asked about", c.name)
		}
		if err := p.Validate(t.Context(), &a); (err != nil) != c.refused {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
