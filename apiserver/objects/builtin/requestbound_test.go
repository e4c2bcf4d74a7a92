package builtin

import (
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// requestOf is a request for a certificate with an RSA key of a length, and a signature that is not of it.
func requestOf(t *testing.T, bits int) string {
	t.Helper()
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	spki, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: n.SetBit(n, 0, 1), E: 65537})
	must.OK(t, err)
	body, err := asn1.Marshal(struct {
		Version    int
		Subject    asn1.RawValue
		Key        asn1.RawValue
		Attributes []asn1.RawValue `asn1:"tag:0"`
	}{Subject: asn1.RawValue{FullBytes: []byte{0x30, 0}}, Key: asn1.RawValue{FullBytes: spki}})
	must.OK(t, err)
	der, err := asn1.Marshal(struct {
		Body      asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{
		asn1.RawValue{FullBytes: body},
		pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, Parameters: asn1.NullRawValue},
		asn1.BitString{Bytes: make([]byte, bits/8), BitLength: bits / 8 * 8},
	})
	must.OK(t, err)
	if _, err := x509.ParseCertificateRequest(der); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// TestBoundRequest: what would take long to verify is refused before it is verified.
func TestBoundRequest(t *testing.T) {
	for _, x := range []struct{ name, request, want string }{
		{"the longest key", requestOf(t, 8192), ""},
		{"a longer key", requestOf(t, 8193), "8192 bits"},
		{"a key that takes a minute", requestOf(t, 1<<17), "8192 bits"},
		{"long", base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a", maxRequest+1))), "65536 bytes"},
		{"as long as it may be", base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a", maxRequest))), ""},
		{"nothing", "", ""},
		{"no base64", "%", ""},
	} {
		errs := boundRequest(x.request)
		got := ""
		if len(errs) > 0 {
			got = errs.ToAggregate().Error()
		}
		if x.want == "" && got != "" || !strings.Contains(got, x.want) {
			t.Errorf("%s: %s, want %q", x.name, got, x.want)
		}
	}
}
