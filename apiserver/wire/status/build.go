package status

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	storeerrors "github.com/quorate/quorate/raftstore/errors"
)

// OptimisticLock is upstream's text for a resourceVersion that is not the
// newest one any more. Clients match on it.
const OptimisticLock = "the object has been modified; please apply your changes to the latest version and try again"

// listTooOld is what upstream says of a list below the history.
const listTooOld = "The resourceVersion for the provided list is too old."

// continueExpired is what upstream says next to a token that continues inconsistently.
const continueExpired = "The provided continue parameter is too old to display a consistent list result. " +
	"You can start a new list without the continue parameter, or use the continue token in this response to " +
	"retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - " +
	"objects that were created, modified, or deleted between the time the first chunk was returned and now may " +
	"show up in the list."

var tooLargeCause = metav1.StatusCause{
	Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
}

func typesUID(s string) types.UID { return types.UID(s) }

// failure is a Status without details.
func failure(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

// InsufficientStorage is the answer to a write for which there is no room. It does not say when to try again:
// client-go waits silently for as long as that says, and the state lasts until somebody makes room.
func InsufficientStorage(err error) *apierrors.StatusError {
	return failure(http.StatusInsufficientStorage, "InsufficientStorage", err.Error())
}

// diskFull is the answer to a write that waits for disks. Whether it is the log that is cut in a moment, or state.db that waits for what only an
// operator can give, nobody knows who has not waited.
func diskFull(e *storeerrors.DiskFullError) *apierrors.StatusError {
	if e.Nodes == "" {
		return apierrors.NewTooManyRequests(e.Error()+", please try again later", retrySoon)
	}
	return apierrors.NewTooManyRequests(e.Error()+", please try again later. If it is the same in a minute, make room on these disks", retrySoon)
}

// BadRequest is a 400 with the text as it is.
func BadRequest(format string, args ...any) *apierrors.StatusError {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

// CannotBeHandled is the 400 for a body of a known kind that does not decode.
func CannotBeHandled(body schema.GroupVersionKind, kind string, err error) *apierrors.StatusError {
	return BadRequest("%s in version %q cannot be handled as a %s: %v", body.Kind, body.Version, kind, err)
}

// Unrecognized is the 400 for a body that does not even tell its kind. kind is
// what was expected; it may be empty.
func Unrecognized(kind string, err error, body []byte) *apierrors.StatusError {
	if kind == "" {
		return BadRequest("the object provided is unrecognized: %v (%s)", err, summary(body))
	}
	return BadRequest("the object provided is unrecognized (must be of type %s): %v (%s)", kind, err, summary(body))
}

// summary shows the first bytes of a body: as text if it looks like JSON.
func summary(body []byte) string {
	const most = 30
	more := ""
	if len(body) > most {
		body, more = body[:most], " ..."
	}
	switch {
	case len(body) == 0:
		return "<empty>"
	case body[0] == '{':
		return string(body) + more
	}
	return hex.EncodeToString(body) + more
}

// NamespaceMismatch is the 400 for an object of another namespace than the URL's.
func NamespaceMismatch() *apierrors.StatusError {
	return BadRequest("the namespace of the provided object does not match the namespace sent on the request")
}

// VersionMismatch is the 400 for a body of another group version than the URL's.
func VersionMismatch(data, expected string) *apierrors.StatusError {
	return BadRequest("the API version in the data (%s) does not match the expected API version (%s)", data, expected)
}

// StrictDecoding is the 400 of fieldValidation=Strict. The findings are joined.
func StrictDecoding(body schema.GroupVersionKind, kind string, findings []string) *apierrors.StatusError {
	return CannotBeHandled(body, kind, fmt.Errorf("strict decoding error: %s", join(findings)))
}

// InvalidResourceVersion is the 400 for a resourceVersion that is no number.
func InvalidResourceVersion(text string) *apierrors.StatusError {
	_, err := strconv.ParseUint(text, 10, 64)
	return BadRequest("invalid resource version: %v", field.Invalid(field.NewPath("resourceVersion"), text, fmt.Sprint(err)))
}

// Unauthorized is the 401.
func Unauthorized() *apierrors.StatusError { return apierrors.NewUnauthorized("Unauthorized") }

// NotFound is the 404 for an object.
func NotFound(resource schema.GroupResource, name string) *apierrors.StatusError {
	return apierrors.NewNotFound(resource, name)
}

// NoSuchResource is the 404 for an unknown resource of a served group version.
func NoSuchResource() *apierrors.StatusError {
	e := failure(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	e.ErrStatus.Details = &metav1.StatusDetails{}
	return e
}

// NoSuchMethod is the 405 for a path that has no such method.
func NoSuchMethod() *apierrors.StatusError {
	e := failure(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		"the server does not allow this method on the requested resource")
	e.ErrStatus.Details = &metav1.StatusDetails{}
	return e
}

// NotAcceptable is the 406 that lists the media types there are.
func NotAcceptable(accepted []string) *apierrors.StatusError {
	return NotAcceptableText("only the following media types are accepted: " + join(accepted))
}

// NotAcceptableText is a 406 with the text as it is.
func NotAcceptableText(text string) *apierrors.StatusError {
	return failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, text)
}

// AlreadyExists is the 409 of a create.
func AlreadyExists(resource schema.GroupResource, name string) *apierrors.StatusError {
	return apierrors.NewAlreadyExists(resource, name)
}

// NoUniqueName is the 409 of a generateName that found only taken names.
func NoUniqueName(resource schema.GroupResource, name string) *apierrors.StatusError {
	return apierrors.NewGenerateNameConflict(resource, name, 1)
}

// Conflict is the 409 of an update against an old resourceVersion.
func Conflict(resource schema.GroupResource, name string) *apierrors.StatusError {
	return apierrors.NewConflict(resource, name, errors.New(OptimisticLock))
}

// ConflictText is the 409 with another reason.
func ConflictText(resource schema.GroupResource, name, text string) *apierrors.StatusError {
	return apierrors.NewConflict(resource, name, errors.New(text))
}

// NoSuchMedia is the 406 for an Accept header that names nothing that is spoken.
func NoSuchMedia(accepted []string) *apierrors.StatusError {
	e := NotAcceptableText("406: Not Acceptable\n\nAvailable representations: " + join(accepted))
	e.ErrStatus.Details = &metav1.StatusDetails{}
	return e
}

// UIDPrecondition is the 409 of a uid in a body. key is how upstream names the
// object's place, for example /registry/pods/default/x.
func UIDPrecondition(resource schema.GroupResource, name, key, want, have string) *apierrors.StatusError {
	return precondition(resource, name, key, "UID", want, have)
}

// VersionPrecondition is the 409 of a resourceVersion in a body that storage compares.
func VersionPrecondition(resource schema.GroupResource, name, key, want, have string) *apierrors.StatusError {
	return precondition(resource, name, key, "ResourceVersion", want, have)
}

// DeleteUIDPrecondition is the 409 of a delete that wants another uid. Upstream
// names the kind where other conflicts name the resource.
func DeleteUIDPrecondition(kind schema.GroupKind, name, want, have string) *apierrors.StatusError {
	return ConflictText(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, name, fmt.Sprintf(
		"the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", want, have))
}

// DeleteVersionPrecondition is the 409 of a delete that wants another
// resourceVersion.
func DeleteVersionPrecondition(kind schema.GroupKind, name, want, have string) *apierrors.StatusError {
	return ConflictText(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, name, fmt.Sprintf(
		"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", want, have))
}

func precondition(resource schema.GroupResource, name, key, what, want, have string) *apierrors.StatusError {
	return ConflictText(resource, name, fmt.Sprintf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, "+
		"AdditionalErrorMsg: Precondition failed: %s in precondition: %s, %s in object meta: %s", key, what, want, what, have))
}

// Expired is the 410 with the text as it is.
func Expired(text string) *apierrors.StatusError { return apierrors.NewResourceExpired(text) }

// WatchTooOld is the 410 of a watch: the revision asked for and the oldest one
// that a watch can start from.
func WatchTooOld(asked, oldest uint64) *apierrors.StatusError {
	return Expired(fmt.Sprintf("too old resource version: %d (%d)", asked, oldest))
}

// ListTooOld is the 410 of a list at an exact revision.
func ListTooOld() *apierrors.StatusError { return Expired(listTooOld) }

// ContinueExpired is the 410 for a continue token below the floor; next
// continues at the newest state.
func ContinueExpired(next string) *apierrors.StatusError {
	e := Expired(continueExpired)
	e.ErrStatus.ListMeta.Continue = next
	return e
}

// BodyTooLarge is the 413 for a body above the limit in bytes.
func BodyTooLarge(limit int64) *apierrors.StatusError {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", limit))
}

// EntityTooLarge is the 413 with another reason.
func EntityTooLarge(text string) *apierrors.StatusError {
	return apierrors.NewRequestEntityTooLargeError(text)
}

// UnsupportedMediaType is the 415 that lists what a body may be.
func UnsupportedMediaType(accepted []string) *apierrors.StatusError {
	return failure(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+join(accepted))
}

// maxFindings are how many things that are wrong one refusal tells. Upstream tells all of
// them, in time that grows with the square of their number: a body of 3 MB can have
// millions.
const maxFindings = 1000

// Invalid is the 422 of validation; it names the kind, not the resource.
func Invalid(kind schema.GroupKind, name string, list field.ErrorList) *apierrors.StatusError {
	if len(list) <= maxFindings {
		return apierrors.NewInvalid(kind, name, list)
	}
	e := apierrors.NewInvalid(kind, name, list[:maxFindings])
	e.ErrStatus.Message += fmt.Sprintf(" and %d more", len(list)-maxFindings)
	return e
}

// MustSpecifyVersion is the 422 of a PUT without a resourceVersion where one is
// needed; upstream names the plural here.
func MustSpecifyVersion(resource schema.GroupResource, name string) *apierrors.StatusError {
	return Invalid(schema.GroupKind{Group: resource.Group, Kind: resource.Resource}, name, field.ErrorList{
		field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"),
	})
}

// InvalidOptions is the 422 of request options; kind is ListOptions,
// CreateOptions and so on.
func InvalidOptions(kind string, list field.ErrorList) *apierrors.StatusError {
	return Invalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", list)
}

// NotReady is the 429 of a store that is still loading, or does not have yet what
// a watch is to start from.
func NotReady(retryAfterSeconds int) *apierrors.StatusError {
	return apierrors.NewTooManyRequests("storage is (re)initializing", retryAfterSeconds)
}

// TooMany is the 429 of a request that is refused after its body was read.
func TooMany(retryAfterSeconds int) *apierrors.StatusError {
	return apierrors.NewTooManyRequests("Too many requests, please try again later.", retryAfterSeconds)
}

// Unreachable is the 500 ServerTimeout for a store without a leader or quorum:
// certainly nothing happened, and a retry may help.
func Unreachable(operation string, resource schema.GroupResource) *apierrors.StatusError {
	if operation == "" {
		operation = "requested"
	}
	e := apierrors.NewServerTimeout(resource, operation, retrySoon)
	if resource.Empty() {
		e.ErrStatus.Message = fmt.Sprintf("The %s operation could not be completed at this time, please try again.", operation)
	}
	return e
}

// NoQuorum adds to the Status of a request that found no leader that the cluster has no quorum, and which
// voters are missing. It is found by its cause.
func NoQuorum(s *metav1.Status, missing string) {
	text := "the cluster has no quorum: " + missing + ". Start what is missing; 'quorate status' shows all members"
	s.Message = strings.TrimSuffix(s.Message, " at this time, please try again.") + ": " + text
	if s.Details == nil {
		s.Details = &metav1.StatusDetails{}
	}
	s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Type: causeNoQuorum, Message: missing})
}

// LastsOn reports whether what a Status says lasts until somebody does something about it: clients that
// try again by themselves as long as the header Retry-After has seconds, as client-go does ten times,
// would only keep it from people.
func LastsOn(s *metav1.Status) bool {
	return s.Details != nil && slices.ContainsFunc(s.Details.Causes, func(c metav1.StatusCause) bool { return c.Type == causeNoQuorum })
}

// causeNoQuorum is the cause of a Status for which a quorum is missing.
const causeNoQuorum metav1.CauseType = "NoQuorum"

// ShuttingDown is the 503 of a node that is about to end.
func ShuttingDown() *apierrors.StatusError {
	e := apierrors.NewServiceUnavailable("apiserver is shutting down")
	e.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return e
}

// WrongState is the 503 of a node whose state was found to differ from the cluster's. It
// names no details: it is for everybody.
func WrongState() *apierrors.StatusError {
	e := apierrors.NewServiceUnavailable("the state of this node differs from the cluster's: it has stopped serving, use another node")
	e.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return e
}

// RemovedNode is the 503 of a node that was removed from the cluster.
func RemovedNode() *apierrors.StatusError {
	e := apierrors.NewServiceUnavailable("this node was removed from the cluster: it has stopped serving, use another node")
	e.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return e
}

// NoTokenKey is the 503 of a node that cannot sign tokens of service accounts yet, because
// the others do not know its key.
func NoTokenKey() *apierrors.StatusError {
	e := apierrors.NewServiceUnavailable("this node cannot issue tokens of service accounts yet: its signing key is not published in the cluster; try again, or use another node")
	e.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return e
}

// Timeout is the 504 of the request's deadline.
func Timeout() *apierrors.StatusError {
	return apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)
}

// TooLargeResourceVersion is the 504 for a revision that does not exist yet.
// Reflectors find it by its cause.
func TooLargeResourceVersion(asked, current uint64) *apierrors.StatusError {
	e := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, current), 1)
	e.ErrStatus.Details.Causes = []metav1.StatusCause{tooLargeCause}
	return e
}
