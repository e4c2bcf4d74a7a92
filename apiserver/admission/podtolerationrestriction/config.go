package podtolerationrestriction

import (
	"fmt"
	"io"

	"github.com/quorate/quorate/apiserver/types/state"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// configuration is Configuration of podtolerationrestriction.admission.k8s.io/v1alpha1.
type configuration struct {
	metav1.TypeMeta `json:",inline"`
	Default         []corev1.Toleration `json:"default,omitempty"`
	Whitelist       []corev1.Toleration `json:"whitelist,omitempty"`
}

const apiVersion = "podtolerationrestriction.admission.k8s.io/v1alpha1"

// New returns the plugin. config is nil, or a Configuration. Errors: it is none, or not valid.
func New(s *state.State, config io.Reader) (*Plugin, error) {
	p := &Plugin{state: s}
	if config == nil {
		return p, nil
	}
	raw, err := io.ReadAll(config)
	if err == nil {
		err = yaml.Unmarshal(raw, &p.of)
	}
	if err != nil {
		return nil, fmt.Errorf("read its configuration: %w", err)
	}
	if p.of.APIVersion != apiVersion || p.of.Kind != "Configuration" {
		return nil, fmt.Errorf("its configuration is a %s of %q, want a Configuration of %s", p.of.Kind, p.of.APIVersion, apiVersion)
	}
	path := field.NewPath("podtolerationrestriction")
	if errs := append(validate(p.of.Default, path.Child("default")), validate(p.of.Whitelist, path.Child("whitelist"))...); len(errs) > 0 {
		return nil, fmt.Errorf("invalid config: %v", errs)
	}
	return p, nil
}

// validate checks tolerations as those of a Pod are checked.
func validate(list []corev1.Toleration, path *field.Path) (errs field.ErrorList) {
	for i, t := range list {
		at := path.Index(i)
		if t.Key != "" {
			errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		} else if t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(at.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'"))
			}
		default:
			errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		switch t.Effect {
		case "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect, []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}))
		}
	}
	return errs
}
