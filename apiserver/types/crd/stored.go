package crd

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// Finalizer keeps a definition until its objects are deleted.
const Finalizer = apiextensionsv1.CustomResourceCleanupFinalizer

// typedOf is a decoded definition as its Go type, as far as it is in the tree.
func typedOf(obj map[string]any) (*apiextensionsv1.CustomResourceDefinition, error) {
	text, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode definition: %w", err)
	}
	out := &apiextensionsv1.CustomResourceDefinition{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, out); err != nil {
		return nil, err
	}
	return out, nil
}

// CheckForm says what does not fit the Go type of a definition in a decoded one: its schemas, which
// are anything to its model.
func CheckForm(obj map[string]any) error {
	_, err := typedOf(obj)
	return err
}

// treeOf is a part of a definition as a decoded tree.
func treeOf(part any) (map[string]any, error) {
	text, err := json.Marshal(part)
	if err != nil {
		return nil, fmt.Errorf("encode definition: %w", err)
	}
	var out map[string]any
	return out, kjson.UnmarshalCaseSensitivePreserveInts(text, &out)
}

// Default completes a decoded definition, in place: upstream's defaults, and the form
// that the Go type gives to schemas, which drops what it does not know. status says
// whether the status is wanted. Values of obj may be shared and are replaced, not
// changed. Errors: a schema of the wrong type somewhere.
func Default(obj map[string]any) error {
	d, err := typedOf(obj)
	if err != nil {
		return err
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&d.Spec)
	if w := d.Spec.Conversion.Webhook; w != nil && w.ClientConfig != nil && w.ClientConfig.Service != nil {
		apiextensionsv1.SetDefaults_ServiceReference(w.ClientConfig.Service)
	}
	if w := d.Spec.Conversion.Webhook; w != nil && w.ClientConfig == nil && w.ConversionReviewVersions == nil {
		d.Spec.Conversion.Webhook = nil // upstream's internal type does not tell it from none
	}
	spec, err := treeOf(d.Spec)
	if err != nil {
		return err
	}
	obj["spec"] = spec
	return nil
}

// PrepareStatus gives a decoded definition the status that the server decides: none
// but its stored versions for a new one; otherwise the storage version is added to
// them. The status is replaced, not changed.
func PrepareStatus(obj map[string]any, created bool) error {
	d, err := typedOf(obj)
	if err != nil {
		return err
	}
	if created {
		d.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	}
	for _, v := range d.Spec.Versions {
		if v.Storage {
			d.Status.StoredVersions = withVersion(d.Status.StoredVersions, v.Name)
			break
		}
	}
	status, err := StatusTree(&d.Status)
	if err != nil {
		return err
	}
	obj["status"] = status
	return nil
}

// StorageVersionName is the version in which a decoded definition stores; "" if there is none.
func StorageVersionName(obj map[string]any) string {
	spec, _ := obj["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for _, v := range versions {
		if version, _ := v.(map[string]any); version["storage"] == true {
			name, _ := version["name"].(string)
			return name
		}
	}
	return ""
}

func withVersion(list []string, name string) []string {
	for _, v := range list {
		if v == name {
			return list
		}
	}
	return append(list, name)
}

// StatusOf is the status of a decoded definition.
func StatusOf(obj map[string]any) (*apiextensionsv1.CustomResourceDefinitionStatus, error) {
	d, err := typedOf(map[string]any{"status": obj["status"]})
	if err != nil {
		return nil, err
	}
	return &d.Status, nil
}

// StatusTree is a status as a decoded tree.
func StatusTree(s *apiextensionsv1.CustomResourceDefinitionStatus) (map[string]any, error) {
	return treeOf(s)
}

// ValidateDefinition is upstream's validation of a complete definition, but for what
// every object's metadata must be. old is nil for a create; statusOnly says that only
// the status can have changed.
func ValidateDefinition(ctx context.Context, obj, old map[string]any, statusOnly bool) (field.ErrorList, error) {
	now, err := internalOf(obj)
	if err != nil {
		return nil, err
	}
	if old == nil {
		return validation.ValidateCustomResourceDefinition(ctx, now), nil
	}
	was, err := internalOf(old)
	if err != nil {
		return nil, err
	}
	if statusOnly {
		return validation.ValidateUpdateCustomResourceDefinitionStatus(now, was), nil
	}
	return validation.ValidateCustomResourceDefinitionUpdate(ctx, now, was), nil
}

func internalOf(obj map[string]any) (*apiextensions.CustomResourceDefinition, error) {
	d, err := typedOf(obj)
	if err != nil {
		return nil, err
	}
	out := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(d, out, nil); err != nil {
		return nil, fmt.Errorf("convert definition: %w", err)
	}
	return out, nil
}
