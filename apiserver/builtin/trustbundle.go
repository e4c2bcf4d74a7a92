package builtin

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"

	"github.com/quorate/quorate/apiserver/tree"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxTrustBundle is the size of a ClusterTrustBundle's certificates, in bytes.
const maxTrustBundle = 1 << 20

// validateTrustBundle checks a ClusterTrustBundle. Certificates that have not changed are not
// read again: a later version of Go may not take all that this one takes.
func validateTrustBundle(obj, old tree.Object) (errs field.ErrorList) {
	meta, spec, was := tree.As(obj["metadata"]), tree.As(obj["spec"]), tree.As(old["spec"])
	signer, path := tree.Text(spec, "signerName"), field.NewPath("spec")
	if prefix := tree.Text(meta, "generateName"); prefix != "" {
		errs = append(errs, validateBundleName(signer, prefix, true, field.NewPath("metadata", "generateName"))...)
	}
	if name := tree.Text(meta, "name"); name != "" { // else its metadata is refused
		errs = append(errs, validateBundleName(signer, name, false, field.NewPath("metadata", "name"))...)
	}
	if signer != "" {
		errs = append(errs, validateSignerName(signer, path.Child("signerName"))...)
	}
	certificates := tree.Text(spec, "trustBundle")
	if old == nil || certificates != tree.Text(was, "trustBundle") {
		errs = append(errs, validateAnchors(certificates, path.Child("trustBundle"))...)
	}
	if old != nil && signer != tree.Text(was, "signerName") {
		errs = append(errs, field.Invalid(path.Child("signerName"), signer, apivalidation.FieldImmutableErrorMsg))
	}
	return errs
}

// validateBundleName: the name of a signer's bundle begins with the signer's, so that a permission
// on names is one on signers.
func validateBundleName(signer, name string, prefix bool, path *field.Path) (errs field.ErrorList) {
	rest := name
	if signer == "" {
		if strings.Contains(name, ":") {
			return field.ErrorList{field.Invalid(path, name, `ClusterTrustBundle without signer name must not have ":" in its name`)}
		}
	} else {
		begin := strings.ReplaceAll(signer, "/", ":") + ":"
		if !strings.HasPrefix(name, begin) {
			return field.ErrorList{field.Invalid(path, name, fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, begin))}
		}
		rest = name[len(begin):]
	}
	for _, msg := range apivalidation.NameIsDNSSubdomain(rest, prefix) {
		errs = append(errs, field.Invalid(path, name, msg))
	}
	return errs
}

// validateAnchors reads the certificates of a bundle: each is an authority's, and none is there
// twice.
func validateAnchors(text string, path *field.Path) (errs field.ErrorList) {
	if len(text) > maxTrustBundle {
		return field.ErrorList{field.TooLong(path, "", maxTrustBundle)}
	}
	refuse := func(format string, args ...any) {
		errs = append(errs, field.Invalid(path, "<value omitted>", fmt.Sprintf(format, args...)))
	}
	places := map[string][]int{}
	var order []string
	rest := []byte(text)
	for i := 0; ; i++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if why := notAnAnchor(block); why != "" {
			refuse("entry %d %s", i, why)
			continue
		}
		key := string(block.Bytes)
		if places[key] == nil {
			order = append(order, key)
		}
		places[key] = append(places[key], i)
	}
	if len(errs) > 0 {
		return errs
	}
	if len(order) == 0 {
		refuse("at least one trust anchor must be provided")
	}
	for _, key := range order {
		if at := places[key]; len(at) > 1 {
			refuse("duplicate trust anchor (indices %v)", at)
		}
	}
	return errs
}

// notAnAnchor says why a block is not the certificate of an authority, or nothing.
func notAnAnchor(block *pem.Block) string {
	if block.Type != "CERTIFICATE" {
		return "has bad block type: " + block.Type
	}
	if len(block.Headers) != 0 {
		return "has PEM block headers"
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	switch {
	case err != nil:
		return "does not parse as X.509"
	case !certificate.IsCA:
		return "does not have the CA bit set"
	case !certificate.BasicConstraintsValid:
		return "has invalid basic constraints"
	}
	return ""
}
