package status

import (
	"errors"
	"net/http"

	"github.com/quorate/quorate/consistency"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ofRead maps the errors of package consistency, or returns nil.
func ofRead(err error, operation string, resource schema.GroupResource) *metav1.Status {
	var (
		refusal     *consistency.Refusal
		tooLarge    *consistency.TooLargeError
		tooStale    *consistency.TooStaleError
		unavailable *consistency.UnavailableError
	)
	switch {
	case errors.As(err, &refusal):
		return ofRefusal(refusal)
	case errors.As(err, &tooLarge):
		e := TooLargeResourceVersion(uint64(tooLarge.Asked), uint64(tooLarge.Current))
		retryAfter(e, tooLarge.RetryAfter)
		return &e.ErrStatus
	case errors.As(err, &tooStale):
		e := apierrors.NewTimeoutError(tooStale.Error(), max(tooStale.RetryAfter, retrySoon))
		return &e.ErrStatus
	case errors.As(err, &unavailable):
		e := Unreachable(operation, resource)
		retryAfter(e, unavailable.RetryAfter)
		return &e.ErrStatus
	case errors.Is(err, consistency.ErrUnavailable):
		return &Unreachable(operation, resource).ErrStatus
	case errors.Is(err, consistency.ErrClosed):
		return &ShuttingDown().ErrStatus
	}
	return nil
}

func retryAfter(e *apierrors.StatusError, seconds int) {
	if seconds > 0 {
		e.ErrStatus.Details.RetryAfterSeconds = int32(seconds)
	}
}

func ofRefusal(r *consistency.Refusal) *metav1.Status {
	if r.Kind != consistency.Invalid {
		return &apierrors.NewBadRequest(r.Message).ErrStatus
	}
	s := failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, r.Message)
	s.ErrStatus.Details = &metav1.StatusDetails{Group: metav1.GroupName, Kind: "ListOptions"}
	for _, f := range r.Fields {
		s.ErrStatus.Details.Causes = append(s.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: metav1.CauseType(f.Type), Message: f.Message, Field: f.Field,
		})
	}
	return &s.ErrStatus
}
