package token

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// Paths of the documents by which others verify tokens.
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeysPath          = "/openid/v1/jwks"
)

// OpenID serves the two documents. Which keys are in force is looked up on each request;
// keysURL is where others fetch them.
func (a *Accounts) OpenID(keysURL string) (http.Handler, error) {
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
			keys, err := json.Marshal(a.cfg.Keys().public(a.cfg.Now()))
			if err != nil {
				http.Error(w, "500 the keys cannot be written", http.StatusInternalServerError)
				return
			}
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
