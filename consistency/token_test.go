package consistency

import (
	"encoding/base64"
	"errors"
	"path"
	"strings"
	"testing"
)

func TestTokenRoundTrip(t *testing.T) {
	for _, key := range []string{"default/a", "clusterscoped", "ns/ü", "ns/..a", "ns/a.b:c"} {
		for _, tok := range []Token{After(key, 1), After(key, 1<<40), After(key, 9).AtLatest()} {
			got, err := DecodeToken(tok.Encode())
			if err != nil || got != tok {
				t.Errorf("%+v came back as %+v, %v", tok, got, err)
			}
			if strings.ContainsAny(tok.Encode(), "+/=") {
				t.Errorf("%q is not unpadded base64url", tok.Encode())
			}
		}
	}
}

// The shape is upstream's, so that tokens are legible to the same tools.
func TestTokenShape(t *testing.T) {
	b, err := base64.RawURLEncoding.DecodeString(After("ns/name", 12).Encode())
	if want := `{"v":"meta.k8s.io/v1","rv":12,"start":"ns/name\u0000"}`; err != nil || string(b) != want {
		t.Errorf("got %s, %v; want %s", b, err, want)
	}
	b, err = base64.RawURLEncoding.DecodeString(After("ns/name", 12).AtLatest().Encode())
	if want := `{"v":"meta.k8s.io/v1","rv":-1,"start":"ns/name\u0000"}`; err != nil || string(b) != want {
		t.Errorf("got %s, %v; want %s", b, err, want)
	}
}

func TestTokenRefusals(t *testing.T) {
	const prefix = "invalid continue token: continue key is not valid"
	for _, c := range []struct{ json, want string }{
		{`{"v":"meta.k8s.io/v1","rv":0,"start":"a"}`, ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)"},
		{`{"v":"meta.k8s.io/v1","start":"a"}`, ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)"},
		{`{"v":"meta.k8s.io/v1","rv":1}`, ": encoded start key empty (version meta.k8s.io/v1)"},
		{`{"v":"meta.k8s.io/v1","rv":1,"start":"/"}`, ": encoded start key empty (version meta.k8s.io/v1)"},
		{`{"v":"meta.k8s.io/v2","rv":1,"start":"a"}`, ": server does not recognize this encoded version meta.k8s.io/v2"},
		{`{"v":"meta.k8s.io/v1","rv":1,"start":"../secrets/a"}`, ": ../secrets/a"},
		{`{"v":"meta.k8s.io/v1","rv":1,"start":"ns/../../a"}`, ": ns/../../a"},
		{`{"v":"meta.k8s.io/v1","rv":1,"start":"ns//a"}`, ": ns//a"},
		{`{"v":"meta.k8s.io/v1","rv":1,"start":"ns/./a"}`, ": ns/./a"},
		{`{"v":"meta.k8s.io/v1","rv":1,"start":"ns/"}`, ": ns/"},
		{`{"v":"meta.k8s.io/v1","rv":1.5,"start":"a"}`, ": json: cannot unmarshal"},
		{`{"v":"meta.k8s.io/v1","rv":9223372036854775808,"start":"a"}`, ": json: cannot unmarshal"},
		{`{`, ": unexpected end of JSON input"},
		{strings.Repeat("x", maxToken), ": 10923 bytes are too long"},
	} {
		tok, err := DecodeToken(base64.RawURLEncoding.EncodeToString([]byte(c.json)))
		var r *Refusal
		if !errors.As(err, &r) || r.Kind != BadRequest || !strings.HasPrefix(r.Message, prefix+c.want) {
			t.Errorf("%.60s: got %+v, %v", c.json, tok, err)
		}
	}
}

// TestTokenLength: a token may have maxToken bytes, and not one more.
func TestTokenLength(t *testing.T) {
	for extra := range 2 {
		long := []byte(`{"v":"meta.k8s.io/v1","rv":1,"start":"` + strings.Repeat("x", base64.RawURLEncoding.DecodedLen(maxToken)))
		long = append(long[:base64.RawURLEncoding.DecodedLen(maxToken)+extra-2], `"}`...)
		tok, err := DecodeToken(base64.RawURLEncoding.EncodeToString(long))
		if accepted := tok.Revision == 1; accepted != (err == nil) || accepted != (extra == 0) {
			t.Errorf("%d bytes more: revision %d, %v", extra, tok.Revision, err)
		}
	}
}

func FuzzDecodeToken(f *testing.F) {
	f.Add(After("ns/name", 12).Encode())
	f.Add(After("name", 1).AtLatest().Encode())
	f.Add("")
	f.Add("e30")
	f.Add(base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":-7,"start":"/a/../b"}`)))
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := DecodeToken(s)
		if err != nil {
			var r *Refusal
			if !errors.As(err, &r) || r.Kind != BadRequest || tok != (Token{}) {
				t.Fatalf("%+v, %v", tok, err)
			}
			return
		}
		if tok.Start == "" || tok.Latest != (tok.Revision == 0) || int64(tok.Revision) < 0 {
			t.Fatalf("accepted %+v", tok)
		}
		if clean := path.Clean("/" + tok.Start); clean != "/"+tok.Start {
			t.Fatalf("start %q is not clean", tok.Start)
		}
		// Whatever is accepted means the same after it has travelled.
		again, err := DecodeToken(tok.Encode())
		if err != nil || again != tok {
			t.Fatalf("%+v became %+v, %v", tok, again, err)
		}
	})
}
