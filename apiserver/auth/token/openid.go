package token

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/go-jose/go-jose/v4"
)

// Paths of the documents by which others verify tokens.
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeysPath          = "/openid/v1/jwks"
)

// OpenID serves the two documents. keysURL is where others fetch the keys.
func (a *Accounts) OpenID(keysURL string) (http.Handler, error) {
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, key := range a.cfg.Keys {
		id, err := keyID(key)
		if err != nil {
			return nil, fmt.Errorf("OpenID documents: %w", err)
		}
		set.Keys = append(set.Keys, jose.JSONWebKey{Algorithm: string(algorithm), Key: key, KeyID: id, Use: "sig"})
	}
	keys, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("OpenID documents: %w", err)
	}
	configuration, err := json.Marshal(struct {
		Issuer   string   `json:"issuer"`
		Keys     string   `json:"jwks_uri"`
		Types    []string `json:"response_types_supported"`
		Subjects []string `json:"subject_types_supported"`
		Signing  []string `json:"id_token_signing_alg_values_supported"`
	}{a.cfg.Issuer, keysURL, []string{"id_token"}, []string{"public"}, []string{string(algorithm)}})
	if err != nil {
		return nil, fmt.Errorf("OpenID documents: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		document, contentType := configuration, "application/json"
		switch r.URL.Path {
		case ConfigurationPath:
		case KeysPath:
			document, contentType = keys, "application/jwk-set+json"
		default:
			http.NotFound(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "405 method not allowed", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", "public, max-age=3600")
		_, _ = w.Write(document)
	}), nil
}
