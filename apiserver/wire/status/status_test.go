package status

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/internal/cputime"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	storeerrors "github.com/quorate/quorate/raftstore/errors"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var update = flag.Bool("update", false, "write testdata/status.txt")

var (
	pods    = schema.GroupResource{Resource: "pods"}
	deploys = schema.GroupResource{Group: "apps", Resource: "deployments"}
	pod     = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
)

// onTheWire is every error there is, by the name under which testdata/status.txt
// has its bytes.
func onTheWire() []struct {
	name string
	s    *metav1.Status
} {
	apply := apierrors.NewApplyConflict([]metav1.StatusCause{{
		Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.replicas",
		Message: `conflict with "kubectl-edit" using apps/v1 at 2025-01-02T03:04:05Z`,
	}}, `Apply failed with 1 conflict: conflict with "kubectl-edit" using apps/v1 at 2025-01-02T03:04:05Z: .spec.replicas`)
	list := InvalidOptions("ListOptions", field.ErrorList{
		field.Forbidden(field.NewPath("resourceVersionMatch"), "resourceVersionMatch is forbidden unless resourceVersion is provided")})
	refusal := &consistency.Refusal{Kind: consistency.Invalid, Message: list.ErrStatus.Message, Fields: []consistency.FieldError{{
		Field: "resourceVersionMatch", Type: consistency.TypeForbidden,
		Message: "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"}}}
	wrapped := func(err error, op string) *metav1.Status { return ForRequest(fmt.Errorf("wrapped: %w", err), op, pods) }
	return []struct {
		name string
		s    *metav1.Status
	}{
		{"unauthorized", From(Unauthorized())},
		{"not found", From(NotFound(pods, "x"))},
		{"no such resource", From(NoSuchResource())},
		{"conflict", From(Conflict(deploys, "d"))},
		{"apply conflict", From(apply)},
		{"continue expired", From(ContinueExpired("<token rv=-1>"))},
		{"list options", From(list)},
		{"not ready", From(NotReady(1))},
		{"too large resource version", From(TooLargeResourceVersion(99, 42))},
		{"success", Success(schema.GroupResource{Resource: "configmaps"}, "x", "<uid>")},
		{"watch too old", From(WatchTooOld(1, 100))},
		{"list too old", From(ListTooOld())},
		{"already exists", From(AlreadyExists(pods, "x"))},
		{"no unique name", From(NoUniqueName(pods, "x-bcdfg"))},
		{"uid precondition", From(UIDPrecondition(pods, "x", "/registry/pods/default/x", "A", "B"))},
		{"version precondition", From(DeleteVersionPrecondition(schema.GroupKind{Kind: "Pod"}, "x", "1", "2"))},
		{"no such method", From(NoSuchMethod())},
		{"not acceptable", From(NotAcceptable([]string{"application/json", "application/yaml"}))},
		{"unsupported media type", From(UnsupportedMediaType([]string{"application/json"}))},
		{"body too large", From(BodyTooLarge(3145728))},
		{"entity too large", From(EntityTooLarge("more than 10000 operations"))},
		{"invalid", From(Invalid(pod.GroupKind(), "x", field.ErrorList{field.Required(field.NewPath("spec", "containers"), "")}))},
		{"must specify version", From(MustSpecifyVersion(pods, "x"))},
		{"namespace mismatch", From(NamespaceMismatch())},
		{"version mismatch", From(VersionMismatch("x", "y"))},
		{"cannot be handled", From(CannotBeHandled(pod, "Pod", errors.New("bad")))},
		{"strict", From(StrictDecoding(pod, "Pod", []string{`unknown field "spec.foo"`, `duplicate field "a"`}))},
		{"unrecognized", From(Unrecognized("Pod", errors.New("bad"), []byte("\x00\x01")))},
		{"invalid resource version", From(InvalidResourceVersion("x"))},
		{"shutting down", From(ShuttingDown())},
		{"timeout", From(Timeout())},
		{"internal", From(errors.New("disk on fire"))},
		{"no leader", wrapped(storeerrors.ErrNoLeader, "list")},
		{"no leader, no request", From(storeerrors.ErrNoLeader)},
		{"unknown outcome", wrapped(errors.Join(storeerrors.ErrUnknownOutcome, context.DeadlineExceeded), "create")},
		{"overloaded", wrapped(storeerrors.ErrOverloaded, "create")},
		{"disks full", wrapped(&storeerrors.DiskFullError{Nodes: "n1, n2"}, "create")},
		{"disks slow", wrapped(&storeerrors.DiskFullError{}, "create")},
		{"rules changing", wrapped(&storeerrors.RulesChangingError{Times: 16}, "create")},
		{"limit exceeded", wrapped(&storeerrors.LimitExceededError{Table: "pods", Key: "default/x", Exceeded: &proto.Exceeded{
			Table: "resourcequotas", Key: "default/q", Bounds: []*proto.ExceededBound{{Name: "pods", Requested: 1, Used: 9, Max: 9}},
		}}, "create")},
		{"too large", wrapped(storeerrors.ErrTooLarge, "create")},
		{"closed", wrapped(storeerrors.ErrClosed, "create")},
		{"compacted list", wrapped(mvcc.ErrCompacted, "list")},
		{"compacted watch", wrapped(mvcc.ErrCompacted, "watch")},
		{"future", wrapped(mvcc.ErrFuture, "list")},
		{"deadline", wrapped(context.DeadlineExceeded, "list")},
		{"canceled", wrapped(context.Canceled, "list")},
		{"refusal", wrapped(refusal, "list")},
		{"bad request", wrapped(&consistency.Refusal{Kind: consistency.BadRequest, Message: "no"}, "list")},
		{"read too large", wrapped(&consistency.TooLargeError{Asked: 99, Current: 42, RetryAfter: 1}, "list")},
		{"read too stale", wrapped(&consistency.TooStaleError{Staleness: 2e9, Max: 1e9}, "get")},
		{"read unavailable", wrapped(&consistency.UnavailableError{Cause: context.DeadlineExceeded, RetryAfter: 1}, "list")},
	}
}

// TestWire compares the bytes on the wire with a text file of name and JSON
// lines, which are upstream's.
func TestWire(t *testing.T) {
	const file = "testdata/status.txt"
	var b strings.Builder
	for _, x := range onTheWire() {
		raw, err := json.Marshal(x.s)
		must.OK(t, err)
		fmt.Fprintf(&b, "%s\n%s\n\n", x.name, raw)
	}
	if *update {
		must.OK(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	raw, err := os.ReadFile(file)
	must.OK(t, err)
	want := strings.Split(string(raw), "\n\n")
	got := strings.Split(b.String(), "\n\n")
	if len(got) != len(want) {
		t.Errorf("%d statuses, %d in %s", len(got), len(want), file)
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Errorf("got\n%s\nwant\n%s", got[i], want[i])
		}
	}
}

func TestFromDoesNotChangeTheError(t *testing.T) {
	e := apierrors.NewNotFound(pods, "x")
	From(e).Message = "other"
	if e.ErrStatus.Message == "other" || e.ErrStatus.Kind != "" {
		t.Errorf("%+v", e.ErrStatus)
	}
}

func TestClientsRecognise(t *testing.T) {
	rows := map[string]bool{
		"conflict":  apierrors.IsConflict(Conflict(pods, "x")),
		"expired":   apierrors.IsResourceExpired(ContinueExpired("t")),
		"too large": apierrors.HasStatusCause(TooLargeResourceVersion(2, 1), metav1.CauseTypeResourceVersionTooLarge),
		"timeout":   apierrors.IsTimeout(Timeout()),
		"exists":    apierrors.IsAlreadyExists(NoUniqueName(pods, "x")),
		"server":    apierrors.IsServerTimeout(Unreachable("get", pods)),
		"too many":  apierrors.IsTooManyRequests(NotReady(1)),
	}
	for name, ok := range rows {
		if !ok {
			t.Errorf("%s is not recognised", name)
		}
	}
}

func TestPlainAnswers(t *testing.T) {
	w := httptest.NewRecorder()
	PlainNotFound(w, httptest.NewRequest("GET", "/nothing", nil))
	if w.Code != 404 || w.Body.String() != "404 page not found\n" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	PlainTooManyRequests(w, 1)
	if w.Code != 429 || w.Header().Get("Retry-After") != "1" || w.Body.String() != "Too many requests, please try again later.\n" {
		t.Errorf("%d %v %q", w.Code, w.Header(), w.Body)
	}
}

func TestNoQuorum(t *testing.T) {
	const why = "of 3 voters n1 answers, and 2 are needed; n2 does not answer; n3 does not answer"
	for _, c := range []struct {
		err  error
		want string // "": it is not for want of a leader
	}{
		{storeerrors.ErrNoLeader, "The create operation against pods could not be completed: the cluster has no quorum: " + why},
		{&consistency.UnavailableError{Cause: context.DeadlineExceeded, RetryAfter: 1}, "The create operation against pods could not be completed: the cluster has no quorum: " + why},
		{storeerrors.ErrUnknownOutcome, "Timeout: the outcome is unknown, the write may have happened: the cluster has no quorum: " + why},
		{storeerrors.ErrOverloaded, ""},
	} {
		if got, _ := FoundNoLeader(c.err); got != (c.want != "") {
			t.Errorf("%v: %v", c.err, got)
		}
		s := ForRequest(c.err, "create", schema.GroupResource{Resource: "pods"})
		if LastsOn(s) {
			t.Errorf("%v lasts on", c.err)
		}
		if NoQuorum(s, why); c.want != "" && (!strings.HasPrefix(s.Message, c.want) || !LastsOn(s)) {
			t.Errorf("%v: %+v", c.err, s)
		}
	}
}

// TestManyFindings: a refusal tells a thousand of a million mistakes, soon.
func TestManyFindings(t *testing.T) {
	var list field.ErrorList
	for i := range 1_000_000 {
		list = append(list, field.Required(field.NewPath("spec", "containers").Index(i), ""))
	}
	var e *apierrors.StatusError
	if took := cputime.Of(func() { e = Invalid(schema.GroupKind{Kind: "Pod"}, "p", list) }); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if m := e.ErrStatus.Message; len(e.ErrStatus.Details.Causes) != maxFindings || !strings.HasSuffix(m, " and 999000 more") || len(m) > 100_000 {
		t.Errorf("%d causes, %d bytes: ...%s", len(e.ErrStatus.Details.Causes), len(m), m[len(m)-100:])
	}
}
