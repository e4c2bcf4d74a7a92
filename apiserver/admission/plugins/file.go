package plugins

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/quorate/quorate/internal/settingfile"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	apiserverv1alpha1 "k8s.io/apiserver/pkg/apis/apiserver/v1alpha1"
)

var errKind = errors.New("it is of another kind, want an AdmissionConfiguration of apiserver.config.k8s.io/v1")

// CheckFile reports what is wrong with an AdmissionConfiguration and the files that it names;
// what it says to plugins is read by New. Without a path there is nothing wrong.
func CheckFile(path string) error {
	_, err := readFile(path)
	return err
}

// readFile reads an AdmissionConfiguration: what it says to each plugin, by name. Paths in it
// are relative to the file. Errors: a file cannot be read, or is none, or names a plugin that
// is in no table or twice.
func readFile(path string) (map[string][]byte, error) {
	if path == "" {
		return nil, nil
	}
	raw, err := settingfile.Read(path, settingfile.MaxBytes)
	if err != nil {
		return nil, err
	}
	plugins, err := parseFile(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	out := map[string][]byte{}
	for _, p := range plugins {
		switch {
		case p.Configuration != nil:
			out[p.Name] = p.Configuration.Raw
		case p.Path != "":
			at := p.Path
			if !filepath.IsAbs(at) {
				at = filepath.Join(filepath.Dir(path), at)
			}
			if out[p.Name], err = settingfile.Read(at, settingfile.MaxBytes); err != nil {
				return nil, fmt.Errorf("%s: plugin %s: %w", path, p.Name, err)
			}
		}
	}
	return out, nil
}

// parseFile is the plugins of an AdmissionConfiguration, each of which is in the table, and once.
// Fields that are not known are errors.
func parseFile(raw []byte) ([]apiserver.AdmissionPluginConfiguration, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiserver.AddToScheme, apiserverv1.AddToScheme, apiserverv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	decoded, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), raw)
	if err != nil && !runtime.IsNotRegisteredError(err) {
		return nil, err
	}
	file, ok := decoded.(*apiserver.AdmissionConfiguration)
	if !ok { // The library's error would name a line of its own source.
		return nil, errKind
	}
	for i, p := range file.Plugins {
		if !known(p.Name) {
			return nil, fmt.Errorf("%w: %q", ErrUnknown, p.Name)
		}
		if slices.ContainsFunc(file.Plugins[:i], func(before apiserver.AdmissionPluginConfiguration) bool { return before.Name == p.Name }) {
			return nil, fmt.Errorf("plugin %q is there twice", p.Name)
		}
	}
	return file.Plugins, nil
}
