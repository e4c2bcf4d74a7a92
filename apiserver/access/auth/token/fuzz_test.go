package token

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

// FuzzToken: nothing but what was issued is anybody: no other header, claims or
// signature, however it is put together. Only the last bits of the signature's text, that
// stand for nothing, may differ.
func FuzzToken(f *testing.F) {
	w := newWorld(f, newKey(f))
	w.put("serviceaccounts", "ns/robot", "u1", time.Time{})
	issued := w.issue(Claims{}, "api")
	parts := strings.Split(issued, ".")
	decode := func(s string) []byte {
		b, err := base64.RawURLEncoding.DecodeString(s)
		if err != nil {
			return nil
		}
		return b
	}
	header, claims, signature := decode(parts[0]), decode(parts[1]), decode(parts[2])
	f.Add(header, claims, signature, uint8(0))
	f.Add([]byte(`{"alg":"none"}`), claims, []byte{}, uint8(0))
	f.Add([]byte(`{"alg":"HS256","kid":"x"}`), claims, signature, uint8(0))
	f.Add(header, bytes.ReplaceAll(claims, []byte("robot"), []byte("admin")), signature, uint8(0))
	f.Add(header, claims, signature, uint8(1))
	f.Fuzz(func(t *testing.T, h, c, s []byte, form uint8) {
		token := base64.RawURLEncoding.EncodeToString(h) + "." + base64.RawURLEncoding.EncodeToString(c) + "." + base64.RawURLEncoding.EncodeToString(s)
		switch form % 3 {
		case 1:
			token = string(h) + "." + string(c) + "." + string(s)
		case 2:
			token = parts[0] + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString(s)
		}
		user, ok, _ := w.a.AuthenticateToken(t.Context(), token)
		if ok != (user != nil) {
			t.Fatalf("ok %v, user %v", ok, user)
		}
		got := strings.Split(token, ".")
		if ok && (len(got) != 3 || got[0] != parts[0] || got[1] != parts[1] || !bytes.Equal(decode(got[2]), signature)) {
			t.Fatalf("%q is %s", token, user.Name)
		}
	})
}
