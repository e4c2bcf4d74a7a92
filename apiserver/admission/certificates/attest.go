package certificates

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/tree"
	certificatesv1 "k8s.io/api/certificates/v1"
)

type attest struct {
	authorizer auth.Authorizer
	log        *slog.Logger
}

// Attest is ClusterTrustBundleAttest: who writes a bundle of a signer needs the permission to
// attest for it, because Pods take what is written there for the signer's certificates.
func Attest(authorizer auth.Authorizer, log *slog.Logger) admission.Validator {
	return &attest{authorizer, log}
}

// Handles implements admission.Plugin.
func (*attest) Handles(a *admission.Attributes) bool {
	return (a.Operation == admission.Create || a.Operation == admission.Update) &&
		a.Resource.Resource == "clustertrustbundles" && a.Resource.Group == certificatesv1.GroupName
}

// Validate implements admission.Validator. The signer is that of the new object: validation has
// refused another one.
func (p *attest) Validate(ctx context.Context, a *admission.Attributes) error {
	signer := tree.Text(tree.As(a.Object["spec"]), "signerName")
	if signer == "" || a.Operation == admission.Update && onlyCollected(a.Object, a.Old) || permitted(ctx, p.authorizer, p.log, a.User, "attest", signer) {
		return nil
	}
	return a.Forbidden(fmt.Errorf("user not permitted to attest for signerName %q", signer))
}

// onlyCollected reports whether an update changes nothing, or what the garbage collector does.
func onlyCollected(obj, old tree.Object) bool {
	return tree.Equal(withoutCollected(obj), withoutCollected(old))
}

func withoutCollected(obj tree.Object) tree.Object {
	obj = tree.Clone(obj)
	meta := tree.Clone(obj["metadata"])
	for _, name := range [...]string{"ownerReferences", "finalizers", "selfLink", "managedFields", "resourceVersion"} {
		delete(meta, name)
	}
	obj["metadata"] = meta
	return obj
}
