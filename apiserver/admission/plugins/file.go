package plugins

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	apiserverv1alpha1 "k8s.io/apiserver/pkg/apis/apiserver/v1alpha1"
)

// readFile reads an AdmissionConfiguration: what it says to each plugin, by name. Paths in it
// are relative to the file. Errors: a file cannot be read, or is none, or names a plugin that
// is in no table or twice.
func readFile(path string) (map[string][]byte, error) {
	if path == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("admission configuration: %w", err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiserver.AddToScheme, apiserverv1.AddToScheme, apiserverv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("admission configuration: %w", err)
		}
	}
	decoded, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), raw)
	if err != nil {
		return nil, fmt.Errorf("admission configuration %s: %w", path, err)
	}
	file, ok := decoded.(*apiserver.AdmissionConfiguration)
	if !ok {
		return nil, fmt.Errorf("admission configuration %s: it is a %T, want an AdmissionConfiguration of apiserver.config.k8s.io/v1", path, decoded)
	}
	out := map[string][]byte{}
	for _, p := range file.Plugins {
		if _, twice := out[p.Name]; twice {
			return nil, fmt.Errorf("admission configuration %s: plugin %q is there twice", path, p.Name)
		}
		if err := Check([]string{p.Name}, nil); err != nil {
			return nil, fmt.Errorf("admission configuration %s: %w: %q", path, ErrUnknown, p.Name)
		}
		switch {
		case p.Configuration != nil:
			out[p.Name] = p.Configuration.Raw
		case p.Path != "":
			at := p.Path
			if !filepath.IsAbs(at) {
				at = filepath.Join(filepath.Dir(path), at)
			}
			if out[p.Name], err = os.ReadFile(at); err != nil {
				return nil, fmt.Errorf("admission configuration %s: plugin %s: %w", path, p.Name, err)
			}
		}
	}
	return out, nil
}
