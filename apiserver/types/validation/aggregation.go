package validation

import (
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/validation"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

var aggregationKinds = map[string]Kind{
	"apiservices.apiregistration.k8s.io": rules[apiregistrationv1.APIService, apiregistration.APIService]{
		convert: apiregistrationv1.Convert_v1_APIService_To_apiregistration_APIService,
		create:  validation.ValidateAPIService,
		update:  validation.ValidateAPIServiceUpdate,
		parts: map[string]func(s, old *apiregistration.APIService) field.ErrorList{
			"status": validation.ValidateAPIServiceStatusUpdate,
		},
	},
}
