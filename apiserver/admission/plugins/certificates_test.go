package plugins_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/certificates"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/raftstore/view"
)

// TestCertificatesOperations: the roles are those that a case creates.
func TestCertificatesOperations(t *testing.T) {
	objectstest.Run(t, "testdata/certificates/*.txt", objectstest.Options{Admission: func(_ view.Store, authorizer auth.Authorizer) []admission.Named {
		log := slog.New(slog.DiscardHandler)
		return []admission.Named{
			{Name: "CertificateApproval", Plugin: certificates.Approval(authorizer, log)},
			{Name: "CertificateSigning", Plugin: certificates.Signing(authorizer, log)},
			{Name: "CertificateSubjectRestriction", Plugin: certificates.Subject()},
		}
	}})
}

// TestCertificatesPermissions: the signer is asked for by its name, then by its domain.
func TestCertificatesPermissions(t *testing.T) {
	for _, c := range []struct {
		allowed string // the name on which the user has the permission
		refused bool
		asked   string
	}{
		{"example.com/s", false, "example.com/s"},
		{"example.com/*", false, "example.com/s example.com/*"},
		{"error", true, "example.com/s example.com/*"},
	} {
		var asked []string
		var logged strings.Builder
		authorizer := auth.AuthorizerFunc(func(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
			if a.User.Name != "alice" || a.Verb != "approve" || a.APIGroup != "certificates.k8s.io" || a.Resource != "signers" || !a.ResourceRequest || a.Namespace != "" {
				t.Errorf("asked for %+v", a)
			}
			asked = append(asked, a.Name)
			if a.Name == c.allowed {
				return auth.Allow, "", nil
			}
			return auth.NoOpinion, "", errors.New("a role is missing")
		})
		a := admission.Attributes{Operation: admission.Update, Subresource: "approval", User: &auth.User{Name: "alice"}, Name: "r",
			Object: map[string]any{"spec": map[string]any{"signerName": "example.org/chosen"}},
			Old:    map[string]any{"spec": map[string]any{"signerName": "example.com/s"}}}
		a.Resource.Group, a.Resource.Resource = "certificates.k8s.io", "certificatesigningrequests"
		p := certificates.Approval(authorizer, slog.New(slog.NewTextHandler(&logged, nil)))
		if !p.Handles(&a) {
			t.Fatal("an approval is not asked about")
		}
		err := p.Validate(t.Context(), &a)
		if (err != nil) != c.refused || strings.Join(asked, " ") != c.asked {
			t.Errorf("%s: %v, asked for %q, want %q", c.allowed, err, asked, c.asked)
		}
		if c.refused && !strings.Contains(logged.String(), "a role is missing") {
			t.Errorf("the log has %q", logged.String())
		}
	}
}
