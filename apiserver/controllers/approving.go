package controllers

import (
	"context"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/kubernetes/pkg/apis/certificates"
)

// approvingPeriod is how often requests are looked at again whose users may not have them approved:
// they may have been given the role since.
const approvingPeriod = 10 * time.Second

// approver approves requests of kubelets for client certificates if roles say that their users may have them, by upstream's rules.
// Requests for serving certificates are for people, or for a program of theirs: what a kubelet says of its own addresses proves
// nothing.
type approver struct {
	base
	authorizer auth.Authorizer
}

func (a *approver) run(ctx context.Context) error {
	q := &requests{
		base: a.base, subresource: "approval", decide: a.approve,
		decided: func(csr *certificatesv1.CertificateSigningRequest) {
			a.reports.log.Info("a certificate signing request is approved", "name", csr.Name, "user", csr.Spec.Username)
		},
	}
	return q.follow(ctx, approvingPeriod)
}

// approve approves a request if it is of a kubelet and its user may have it.
func (a *approver) approve(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) (changed, look bool) {
	if len(csr.Status.Certificate) > 0 || hasCondition(csr, certificatesv1.CertificateApproved) || hasCondition(csr, certificatesv1.CertificateDenied) ||
		csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return false, false
	}
	request, err := certificates.ParseCSR(csr.Spec.Request)
	if err != nil || !certificates.IsKubeletClientCSR(request, usageSet(csr.Spec.Usages)) {
		return false, false
	}
	for _, rule := range approvals {
		if rule.self && csr.Spec.Username != request.Subject.CommonName {
			continue
		}
		decision, _, err := a.authorizer.Authorize(ctx, auth.Attributes{
			User: requester(csr), Verb: "create", APIGroup: requestsGVR.Group, APIVersion: "*",
			Resource: requestsGVR.Resource, Subresource: rule.subresource, ResourceRequest: true,
		})
		if decision == auth.Allow {
			condition(csr, certificatesv1.CertificateApproved, "AutoApproved", rule.message, a.objects.Now())
			return true, false
		}
		if err != nil {
			a.reports.log.Warn("whether a certificate signing request may be approved cannot be decided", "name", csr.Name, "user", csr.Spec.Username, "err", err)
		}
	}
	return false, true
}

// approvals are the permissions by which requests of kubelets are approved, in upstream's words.
var approvals = [...]struct {
	subresource, message string
	self                 bool // only for a certificate of the user who asks
}{
	{"selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.", true},
	{"nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.", false},
}

// requester is the user who has made a request: the server itself has written the name.
func requester(csr *certificatesv1.CertificateSigningRequest) *auth.User {
	u := &auth.User{Name: csr.Spec.Username, UID: csr.Spec.UID, Groups: csr.Spec.Groups, Extra: map[string][]string{}}
	for k, v := range csr.Spec.Extra {
		u.Extra[k] = v
	}
	return u
}
