// Package certificates is the plugins CertificateApproval, CertificateSigning,
// CertificateSubjectRestriction and ClusterTrustBundleAttest: who may approve a
// CertificateSigningRequest, who may write its certificate, and who may say by which
// certificates a signer is trusted.
//
// Signers are not stored anywhere: they are names that roles speak of. Who writes the approval
// of a request, or its certificate, needs the signer's permission besides, because signers and
// clients take what is written there for decided.
package certificates

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/tree"
	certificatesv1 "k8s.io/api/certificates/v1"
)

// signers asks for permissions of signers.
type signers struct {
	subresource string // of CertificateSigningRequests: which updates are asked about
	verb        string // on the signer
	concerns    func(a *admission.Attributes) bool
	authorizer  auth.Authorizer
	log         *slog.Logger
}

// Approval is CertificateApproval.
func Approval(authorizer auth.Authorizer, log *slog.Logger) admission.Validator {
	return &signers{"approval", "approve", func(*admission.Attributes) bool { return true }, authorizer, log}
}

// Signing is CertificateSigning.
func Signing(authorizer auth.Authorizer, log *slog.Logger) admission.Validator {
	return &signers{"status", "sign", signs, authorizer, log}
}

// signs reports whether an update changes what signers write.
func signs(a *admission.Attributes) bool {
	now, was := tree.As(a.Object["status"]), tree.As(a.Old["status"])
	return !tree.Equal(now["certificate"], was["certificate"]) || !sameList(tree.List(now["conditions"]), tree.List(was["conditions"]))
}

func sameList(a, b []any) bool { return len(a) == 0 && len(b) == 0 || tree.Equal(a, b) }

// Handles implements admission.Plugin.
func (s *signers) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Update && a.Subresource == s.subresource && isRequest(a)
}

func isRequest(a *admission.Attributes) bool {
	return a.Resource.Resource == "certificatesigningrequests" && a.Resource.Group == certificatesv1.GroupName
}

// Validate implements admission.Validator. The signer is that of the stored request: a user
// must not choose the signer by whose permission it is approved.
func (s *signers) Validate(ctx context.Context, a *admission.Attributes) error {
	if !s.concerns(a) {
		return nil
	}
	signer := tree.Text(tree.As(a.Old["spec"]), "signerName")
	if permitted(ctx, s.authorizer, s.log, a.User, s.verb, signer) {
		return nil
	}
	return a.Forbidden(fmt.Errorf("user not permitted to %s requests with signerName %q", s.verb, signer))
}

// permitted reports whether a user has a permission on a signer, or on all signers of its domain.
func permitted(ctx context.Context, authorizer auth.Authorizer, log *slog.Logger, user *auth.User, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range [...]string{signer, domain + "/*"} {
		decision, reason, err := authorizer.Authorize(ctx, auth.Attributes{
			User: user, Verb: verb, APIGroup: certificatesv1.GroupName, APIVersion: "*", Resource: "signers", Name: name, ResourceRequest: true,
		})
		if decision == auth.Allow {
			return true
		}
		if err != nil {
			log.Warn("a permission on a signer cannot be decided; the request is refused", "verb", verb, "signer", name, "reason", reason, "err", err)
		}
	}
	return false
}

// subject is CertificateSubjectRestriction.
type subject struct{}

// Subject is CertificateSubjectRestriction: no request asks for a certificate of
// system:masters, which is above all roles.
func Subject() admission.Validator { return subject{} }

// Handles implements admission.Plugin.
func (subject) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Create && a.Subresource == "" && isRequest(a)
}

// Validate implements admission.Validator.
func (subject) Validate(_ context.Context, a *admission.Attributes) error {
	spec := tree.As(a.Object["spec"])
	if tree.Text(spec, "signerName") != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	request, err := parse(tree.Text(spec, "request"))
	if err != nil {
		return a.Forbidden(fmt.Errorf("failed to parse CSR: %w", err))
	}
	for _, group := range request.Subject.Organization {
		if group == auth.Masters {
			return a.Forbidden(errMasters)
		}
	}
	return nil
}

var errMasters = errors.New("use of " + certificatesv1.KubeAPIServerClientSignerName + " signer with " + auth.Masters + " group is not allowed")
