package validation

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "k8s.io/kubernetes/pkg/apis/authorization/v1"
	"k8s.io/kubernetes/pkg/apis/authorization/validation"
)

// SubjectAccessReview is what is wrong with a question whether somebody may do something.
func SubjectAccessReview(r *authorizationv1.SubjectAccessReview) field.ErrorList {
	return review(r, v1.Convert_v1_SubjectAccessReview_To_authorization_SubjectAccessReview, validation.ValidateSubjectAccessReview)
}

// LocalSubjectAccessReview is that of a question about one namespace.
func LocalSubjectAccessReview(r *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
	return review(r, v1.Convert_v1_LocalSubjectAccessReview_To_authorization_LocalSubjectAccessReview, validation.ValidateLocalSubjectAccessReview)
}

// SelfSubjectAccessReview is that of a question whether who asks may.
func SelfSubjectAccessReview(r *authorizationv1.SelfSubjectAccessReview) field.ErrorList {
	return review(r, v1.Convert_v1_SelfSubjectAccessReview_To_authorization_SelfSubjectAccessReview, validation.ValidateSelfSubjectAccessReview)
}

func review[V, I any](r *V, convert func(*V, *I, conversion.Scope) error, validate func(*I) field.ErrorList) field.ErrorList {
	in := new(I)
	if err := convert(r, in, nil); err != nil {
		return undecodable(err)
	}
	return validate(in)
}
