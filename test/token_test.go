package test

import (
	"encoding/base64"
	"encoding/json"
	"testing"
)

// continueToken is what continue tokens look like to anybody who looks.
type continueToken struct {
	V     string `json:"v"`
	RV    int64  `json:"rv"`
	Start string `json:"start"`
}

func encodeToken(rv int64, start string) string {
	b, err := json.Marshal(continueToken{"meta.k8s.io/v1", rv, start})
	if err != nil {
		panic(err) // strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeToken(t testing.TB, token string) (c continueToken) {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		t.Fatalf("continue token %q: %v", token, err)
	}
	return c
}
