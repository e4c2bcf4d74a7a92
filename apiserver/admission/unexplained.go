package admission

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// internalServerError is the status code of that name.
const internalServerError = 500

// Unexplained is an error that has no status of its own, as upstream's answer has it: the text, with 500 and no
// reason. Of no error it is none.
func Unexplained(err error) error {
	if err == nil {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: internalServerError, Message: err.Error()}}
}
