package builtin

import (
	"fmt"
	"strings"

	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Signers are not stored anywhere: they are names that roles speak of. Who may write
// the approval of a request, or its certificate, needs the signer's permission besides,
// because signers and clients take what is written there for decided. The rules and
// texts are those of upstream's admission plugins CertificateApproval,
// CertificateSigning and CertificateSubjectRestriction.

var signersGR = schema.GroupResource{Group: certificatesv1.GroupName, Resource: "signers"}

// mayUseSigner refuses users who lack a verb on a signer and on its whole domain.
func mayUseSigner(o *objects.Op, verb, signer, what string) error {
	domain, _, _ := strings.Cut(signer, "/")
	if o.Permitted(verb, signersGR, signer) || o.Permitted(verb, signersGR, domain+"/*") {
		return nil
	}
	return apierrors.NewForbidden(o.Resource.GroupResource(), o.Info.Name, fmt.Errorf("user not permitted to %s requests with signerName %q", what, signer))
}

// mayApprove refuses users who may not approve for the signer of a stored request.
func mayApprove(o *objects.Op, stored tree.Object) error {
	return mayUseSigner(o, "approve", tree.Text(tree.As(stored["spec"]), "signerName"), "approve")
}

// maySign refuses users who may not sign for the signer of a stored request, if the
// certificate or the conditions change.
func maySign(o *objects.Op, obj, stored tree.Object) error {
	now, was := tree.As(obj["status"]), tree.As(stored["status"])
	if tree.Equal(now["certificate"], was["certificate"]) && sameList(conditionsOf(obj), conditionsOf(stored)) {
		return nil
	}
	return mayUseSigner(o, "sign", tree.Text(tree.As(stored["spec"]), "signerName"), "sign")
}

func sameList(a, b []any) bool { return len(a) == 0 && len(b) == 0 || tree.Equal(a, b) }

// checkSubject refuses requests for certificates that would be above all roles.
func checkSubject(o *objects.Op, obj tree.Object) error {
	spec := tree.As(obj["spec"])
	if tree.Text(spec, "signerName") != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	request, err := signingRequestOf(spec["request"])
	if err != nil {
		return nil // it is refused for that
	}
	for _, group := range request.Subject.Organization {
		if group == auth.Masters {
			return apierrors.NewForbidden(o.Resource.GroupResource(), tree.Text(tree.As(obj["metadata"]), "name"),
				fmt.Errorf("use of %s signer with %s group is not allowed", certificatesv1.KubeAPIServerClientSignerName, auth.Masters))
		}
	}
	return nil
}
