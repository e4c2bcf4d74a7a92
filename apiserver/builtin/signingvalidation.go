package builtin

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/tree"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// legacySigner is the signer that only older versions of the API could ask.
const legacySigner = "kubernetes.io/legacy-unknown"

// minExpiration is the shortest life that can be asked for, in seconds.
const minExpiration = 600

// knownUsages are the known ones, sorted: certificates say what keys are for in these words.
var knownUsages = func() []string {
	out := []string{}
	for _, u := range [...]certificatesv1.KeyUsage{
		certificatesv1.UsageSigning, certificatesv1.UsageDigitalSignature, certificatesv1.UsageContentCommitment,
		certificatesv1.UsageKeyEncipherment, certificatesv1.UsageKeyAgreement, certificatesv1.UsageDataEncipherment,
		certificatesv1.UsageCertSign, certificatesv1.UsageCRLSign, certificatesv1.UsageEncipherOnly, certificatesv1.UsageDecipherOnly,
		certificatesv1.UsageAny, certificatesv1.UsageServerAuth, certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning,
		certificatesv1.UsageEmailProtection, certificatesv1.UsageSMIME, certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel,
		certificatesv1.UsageIPsecUser, certificatesv1.UsageTimestamping, certificatesv1.UsageOCSPSigning, certificatesv1.UsageMicrosoftSGC,
		certificatesv1.UsageNetscapeSGC,
	} {
		out = append(out, string(u))
	}
	slices.Sort(out)
	return out
}()

// validateSigningRequest checks what signers may rely on. What is wrong with a stored
// request already is no reason to refuse its update.
func validateSigningRequest(obj, old tree.Object) field.ErrorList {
	spec, path := tree.As(obj["spec"]), field.NewPath("spec")
	was := tree.As(old["spec"])
	var errs field.ErrorList
	if err := validateRequest(spec["request"]); err != nil {
		errs = append(errs, field.Invalid(path.Child("request"), spec["request"], err.Error()))
	}
	errs = append(errs, validateUsages(tree.List(spec["usages"]), tree.List(was["usages"]), path.Child("usages"))...)
	signer := tree.Text(spec, "signerName")
	if signer == legacySigner && tree.Text(was, "signerName") != legacySigner {
		errs = append(errs, field.Invalid(path.Child("signerName"), signer, "the legacy signerName is not allowed via this API version"))
	} else if signer != "" { // the schema requires it
		errs = append(errs, validateSignerName(signer, path.Child("signerName"))...)
	}
	if n, set := tree.Int(spec["expirationSeconds"]); set && n < minExpiration {
		errs = append(errs, field.Invalid(path.Child("expirationSeconds"), n, "may not specify a duration less than 600 seconds (10 minutes)"))
	}
	return errs
}

// validateRequest checks the form and the signature of a PKCS#10 request.
func validateRequest(v any) error {
	request, err := signingRequestOf(v)
	if err != nil {
		return err
	}
	return request.CheckSignature()
}

// signingRequestOf reads spec.request of a decoded signing request. The signature is not
// checked.
func signingRequestOf(v any) (*x509.CertificateRequest, error) {
	s, _ := v.(string)
	raw, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

func validateUsages(now, old []any, path *field.Path) (errs field.ErrorList) {
	if len(now) == 0 {
		return nil // the schema has a default for it
	}
	unknown, twice := usageFaults(now)
	oldUnknown, oldTwice := usageFaults(old)
	if len(oldUnknown) == 0 {
		for _, i := range unknown {
			errs = append(errs, field.NotSupported(path.Index(i), now[i], knownUsages))
		}
	}
	if len(oldTwice) == 0 {
		for _, i := range twice {
			errs = append(errs, field.Duplicate(path.Index(i), now[i]))
		}
	}
	return errs
}

// usageFaults are the places of usages that nobody knows or that are there before.
func usageFaults(all []any) (unknown, twice []int) {
	seen := make(map[string]bool, len(all))
	for i, u := range all {
		s, _ := u.(string)
		if _, ok := slices.BinarySearch(knownUsages, s); !ok {
			unknown = append(unknown, i)
		}
		if seen[s] {
			twice = append(twice, i)
		}
		seen[s] = true
	}
	return unknown, twice
}

// validateSignerName checks a name of the form example.com/signer.
func validateSignerName(name string, path *field.Path) (errs field.ErrorList) {
	domain, signer, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(signer, "/") {
		return field.ErrorList{field.Invalid(path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	if len(domain) > validation.DNS1123SubdomainMaxLength {
		errs = append(errs, field.TooLong(path, "", validation.DNS1123SubdomainMaxLength))
	}
	labels := strings.Split(domain, ".")
	errs = append(errs, validateLabels(labels, validation.IsDNS1123Label, domain, path)...)
	if len(labels) < 2 {
		errs = append(errs, field.Invalid(path, domain, "should be a domain with at least two segments separated by dots"))
	}
	errs = append(errs, validateLabels(strings.Split(signer, "."), validation.IsDNS1123Subdomain, signer, path)...)
	const most = validation.DNS1123SubdomainMaxLength + validation.DNS1123SubdomainMaxLength + validation.DNS1123LabelMaxLength + 2
	if len(name) > most {
		errs = append(errs, field.TooLong(path, "", most))
	}
	return errs
}

// validateLabels says what is wrong with the first label that is not valid.
func validateLabels(labels []string, valid func(string) []string, whole string, path *field.Path) (errs field.ErrorList) {
	for _, label := range labels {
		for _, msg := range valid(label) {
			errs = append(errs, field.Invalid(path, whole, fmt.Sprintf("validating label %q: %s", label, msg)))
		}
		if errs != nil {
			return errs
		}
	}
	return nil
}

// validateCertificate checks what a signer writes: base64 of certificates in PEM, and nothing
// else between the blocks.
func validateCertificate(encoded string) error {
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return err
	}
	blocks := 0
	for {
		block, rest := pem.Decode(raw)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) != 0 {
			return errors.New("no PEM block headers are permitted")
		}
		blocks++
		found, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
		raw = rest
	}
	if blocks == 0 {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}
