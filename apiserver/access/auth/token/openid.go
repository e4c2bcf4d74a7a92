package token

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// Paths of the documents by which others verify tokens.
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeysPath          = "/openid/v1/jwks"
)

// OpenID serves the two documents. Which keys are in force is looked up on each request;
// keysURL is where others fetch them.
func (a *Accounts) OpenID(keysURL string) (http.Handler, error) {
	if _, err := json.Marshal(keysURL); err != nil {
		return nil, fmt.Errorf("OpenID documents: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys := a.cfg.Keys().public(a.cfg.Now())
		var document any
		contentType := "application/json"
		switch r.URL.Path {
		case ConfigurationPath:
			document = configuration{
				Issuer: a.cfg.Issuer, Keys: keysURL, Types: []string{"id_token"}, Subjects: []string{"public"}, Signing: algorithmsOf(keys),
			}
		case KeysPath:
			document, contentType = keys, "application/jwk-set+json"
		default:
			http.NotFound(w, r)
			return
		}
		text, err := json.Marshal(document)
		if err != nil {
			http.Error(w, "500 the keys cannot be written", http.StatusInternalServerError)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "405 method not allowed", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", "public, max-age=3600")
		_, _ = w.Write(text)
	}), nil
}

// configuration is the document of ConfigurationPath.
type configuration struct {
	Issuer   string   `json:"issuer"`
	Keys     string   `json:"jwks_uri"`
	Types    []string `json:"response_types_supported"`
	Subjects []string `json:"subject_types_supported"`
	Signing  []string `json:"id_token_signing_alg_values_supported"`
}

// algorithmsOf are those of keys, each once and in order. Without a key it is the one that nodes' own keys
// have, since the document must name one.
func algorithmsOf(keys jose.JSONWebKeySet) []string {
	var out []string
	for _, key := range keys.Keys {
		out = append(out, key.Algorithm)
	}
	if len(out) == 0 {
		out = append(out, string(jose.ES256))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
