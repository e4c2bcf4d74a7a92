package resourcequota

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	config "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota/install"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota/validation"
)

// readConfig reads the plugin's configuration; nil is an empty one.
func readConfig(r io.Reader) ([]config.LimitedResource, error) {
	if r == nil {
		return nil, nil
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	obj, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), raw)
	if err != nil {
		return nil, fmt.Errorf("decode the configuration: %w", err)
	}
	c, ok := obj.(*config.Configuration)
	if !ok {
		return nil, fmt.Errorf("the configuration is a %T, want a ResourceQuotaConfiguration of apiserver.config.k8s.io", obj)
	}
	if errs := validation.ValidateConfiguration(c); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return c.LimitedResources, nil
}
