package imagepolicy

import (
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// configuration is that of upstream's plugin, which has no kind and no version.
type configuration struct {
	ImagePolicy settings `json:"imagePolicy"`
}

// settings say where the backend is, and how its answers are kept. Zero is the default of a time,
// -1 is none.
type settings struct {
	KubeConfigFile string `json:"kubeConfigFile"`
	// AllowTTL and DenyTTL are in seconds.
	AllowTTL time.Duration `json:"allowTTL"`
	DenyTTL  time.Duration `json:"denyTTL"`
	// RetryBackoff is in milliseconds.
	RetryBackoff time.Duration `json:"retryBackoff"`
	// DefaultAllow admits Pods about which the backend does not answer.
	DefaultAllow bool `json:"defaultAllow"`
}

// load reads a configuration. Errors: there is none, or a time is out of its bounds, in upstream's
// words.
func load(config io.Reader) (*settings, error) {
	if config == nil {
		return nil, errors.New("no config specified")
	}
	var c configuration
	if err := yaml.NewYAMLOrJSONDecoder(config, 4096).Decode(&c); err != nil {
		return nil, err
	}
	s := &c.ImagePolicy
	for _, d := range []struct {
		value                        *time.Duration
		unit, least, most, byDefault time.Duration
	}{
		{&s.RetryBackoff, time.Millisecond, 1, 5 * time.Minute, 500 * time.Millisecond},
		{&s.AllowTTL, time.Second, time.Second, 30 * time.Minute, 5 * time.Minute},
		{&s.DenyTTL, time.Second, time.Second, 30 * time.Minute, 30 * time.Second},
	} {
		switch *d.value {
		case -1:
			*d.value = 0
		case 0:
			*d.value = d.byDefault
		default:
			// What is too large for a Duration is out of bounds, whatever it becomes.
			made := *d.value * d.unit
			if made/d.unit != *d.value || made < d.least || made > d.most {
				return nil, fmt.Errorf("valid value is between %v and %v, got %v", d.least, d.most, made)
			}
			*d.value = made
		}
	}
	return s, nil
}
