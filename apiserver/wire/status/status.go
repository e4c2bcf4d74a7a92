package status

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/quorate/quorate/consistency"
	storeerrors "github.com/quorate/quorate/raftstore/errors"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// retrySoon is the Retry-After of what another leader may serve in a second.
const retrySoon = 1

// From turns any error into a Status. Errors that already carry one keep it,
// also when they are wrapped; anything unknown is 500 InternalError. Handlers
// that know the operation and the resource use ForRequest.
func From(err error) *metav1.Status { return ForRequest(err, "", schema.GroupResource{}) }

// ForRequest is From for an operation (a verb in the API's words: get, list,
// create, ...) on a resource; both appear where upstream names them. The result
// is the caller's own.
func ForRequest(err error, operation string, resource schema.GroupResource) *metav1.Status {
	var carried apierrors.APIStatus
	if errors.As(err, &carried) {
		s := carried.Status()
		return finish(&s)
	}
	if s := ofRead(err, operation, resource); s != nil {
		return finish(s)
	}
	return finish(ofStore(err, operation, resource))
}

// FoundNoLeader reports whether a request failed because no leader, or no majority behind one, answered,
// and whether it is a write that may have happened all the same.
func FoundNoLeader(err error) (found, unknown bool) {
	unknown = errors.Is(err, storeerrors.ErrUnknownOutcome)
	return unknown || errors.Is(err, storeerrors.ErrNoLeader) || errors.Is(err, storeerrors.ErrNotLeader) || errors.Is(err, consistency.ErrUnavailable), unknown
}

// ofStore maps the sentinels of the store and the context's errors. The order
// matters: an unknown outcome often wraps the deadline that caused it.
func ofStore(err error, operation string, resource schema.GroupResource) *metav1.Status {
	var e *apierrors.StatusError
	var changing *storeerrors.RulesChangingError
	var exceeded *storeerrors.LimitExceededError
	var full *storeerrors.NoSpaceError
	var disks *storeerrors.DiskFullError
	switch {
	case errors.Is(err, storeerrors.ErrUnknownOutcome):
		e = apierrors.NewTimeoutError("the outcome is unknown, the write may have happened", 0)
	case errors.Is(err, storeerrors.ErrNoLeader), errors.Is(err, storeerrors.ErrNotLeader):
		e = Unreachable(operation, resource)
	case errors.Is(err, storeerrors.ErrOverloaded):
		e = apierrors.NewTooManyRequests("too many writes in flight, please try again later", retrySoon)
	case errors.As(err, &changing):
		e = apierrors.NewTooManyRequests(changing.Error(), retrySoon)
	case errors.As(err, &exceeded):
		_, name, _ := strings.Cut(exceeded.Key, "/")
		e = apierrors.NewForbidden(resource, name, exceeded)
	case errors.As(err, &disks):
		e = diskFull(disks)
	case errors.As(err, &full):
		e = InsufficientStorage(full)
	case errors.Is(err, storeerrors.ErrTooLarge):
		e = apierrors.NewRequestEntityTooLargeError("the object is larger than the store takes")
	case errors.Is(err, storeerrors.ErrFeature):
		e = apierrors.NewServiceUnavailable(storeerrors.ErrFeature.Error())
	case errors.Is(err, storeerrors.ErrClosed):
		e = ShuttingDown()
	case errors.Is(err, mvcc.ErrCompacted):
		e = apierrors.NewResourceExpired(listTooOld)
		if operation == "watch" {
			e.ErrStatus.Message = "The resourceVersion for the provided watch is too old."
		}
	case errors.Is(err, mvcc.ErrFuture):
		e = apierrors.NewTimeoutError("the requested resource version has not been applied on this node yet", retrySoon)
		e.ErrStatus.Details.Causes = []metav1.StatusCause{tooLargeCause}
	case errors.Is(err, context.DeadlineExceeded):
		e = apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)
	case errors.Is(err, context.Canceled):
		e = apierrors.NewTimeoutError("the client has gone before the request was complete", 0)
	default:
		e = apierrors.NewInternalError(err)
	}
	return &e.ErrStatus
}

// finish fills in what a Status on the wire always has.
func finish(s *metav1.Status) *metav1.Status {
	s.Kind, s.APIVersion = "Status", "v1"
	if s.Status == "" {
		s.Status = metav1.StatusFailure
	}
	if s.Code == 0 && s.Status == metav1.StatusFailure {
		s.Code = http.StatusInternalServerError
	}
	return s
}

// Success is the answer to a delete that has removed the object. It has no code.
func Success(resource schema.GroupResource, name, uid string) *metav1.Status {
	return finish(&metav1.Status{
		Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name: name, Group: resource.Group, Kind: resource.Resource, UID: typesUID(uid),
		},
	})
}

// OK is the Status of something that was done and that made no object.
func OK() *metav1.Status { return finish(&metav1.Status{Status: metav1.StatusSuccess}) }

// PlainNotFound answers a path that nobody serves: text, not a Status.
func PlainNotFound(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }

// PlainTooManyRequests answers a request that was not admitted: text, with
// Retry-After.
func PlainTooManyRequests(w http.ResponseWriter, retryAfterSeconds int) {
	w.Header().Set("Retry-After", fmt.Sprint(retryAfterSeconds))
	http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
}

func join(words []string) string { return strings.Join(words, ", ") }
