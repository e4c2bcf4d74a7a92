package conversion

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Webhook is how the objects of one definition are converted. It is immutable.
type Webhook struct {
	// Definition is the name of the CustomResourceDefinition.
	Definition string
	// URL to ask; empty if Service is set.
	URL     string
	Service *Service
	// CABundle is PEM; empty: the host's roots.
	CABundle []byte
	// ReviewVersions are the versions of ConversionReview that the webhook takes, the
	// one it likes best first.
	ReviewVersions []string

	// id tells configurations apart.
	id string
}

// Service names a Service of the cluster.
type Service struct {
	Namespace, Name string
	Path            string
	Port            int32
}

// Of returns the webhook of a definition's spec.conversion, nil if it has none.
func Of(definition string, c *apiextensions.CustomResourceConversion) *Webhook {
	if c == nil || c.Strategy != apiextensions.WebhookConverter || c.Webhook == nil || c.Webhook.ClientConfig == nil {
		return nil
	}
	config := c.Webhook.ClientConfig
	w := &Webhook{Definition: definition, ReviewVersions: c.Webhook.ConversionReviewVersions}
	if len(bytes.TrimSpace(config.CABundle)) > 0 {
		w.CABundle = config.CABundle
	}
	if config.URL != nil {
		w.URL = *config.URL
	}
	if s := config.Service; s != nil {
		w.Service = &Service{Namespace: s.Namespace, Name: s.Name, Port: 443}
		if s.Port != nil {
			w.Service.Port = *s.Port
		}
		if s.Path != nil {
			w.Service.Path = *s.Path
		}
	}
	text, err := json.Marshal(w)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	sum := sha256.Sum256(text)
	w.id = hex.EncodeToString(sum[:12])
	return w
}

// ID is the same for the same configuration of the same definition.
func (w *Webhook) ID() string { return w.id }
