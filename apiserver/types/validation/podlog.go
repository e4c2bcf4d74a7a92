package validation

import (
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/apis/core"
	v1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/features"
)

// PodLogOptions reads what a client asks of the log of a Pod from its query. Errors: upstream's.
func PodLogOptions(query url.Values, pod string) (*corev1.PodLogOptions, error) {
	options, internal := new(corev1.PodLogOptions), new(core.PodLogOptions)
	err := v1.Convert_url_Values_To_v1_PodLogOptions(&query, options, nil)
	if err == nil {
		v1.SetDefaults_PodLogOptions(options)
		err = v1.Convert_v1_PodLogOptions_To_core_PodLogOptions(options, internal, nil)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	split := utilfeature.DefaultFeatureGate.Enabled(features.PodLogsQuerySplitStreams)
	if errs := validation.ValidatePodLogOptions(internal, split); len(errs) > 0 {
		return nil, apierrors.NewInvalid(core.Kind("PodLogOptions"), pod, errs)
	}
	return options, nil
}
