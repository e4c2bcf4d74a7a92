package audit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	internal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// maxUserAgent is upstream's bound, in bytes.
const maxUserAgent = 1024

// Event follows one request through its stages. Its methods are called on the
// request's goroutine, one at a time; Annotate may be called by several.
type Event struct {
	mu          sync.Mutex // of the annotations
	log         *Log
	event       auditv1.Event
	omit        []internal.Stage
	omitManaged bool
	started     bool
}

// WantsRequest and WantsResponse report whether bodies are recorded.
func (e *Event) WantsRequest() bool {
	return e != nil && (e.event.Level == auditv1.LevelRequest || e.event.Level == auditv1.LevelRequestResponse)
}

func (e *Event) WantsResponse() bool {
	return e != nil && e.event.Level == auditv1.LevelRequestResponse
}

// At reports whether the event is recorded at a level or above.
func (e *Event) At(level internal.Level) bool {
	return e != nil && !internal.Level(e.event.Level).Less(level)
}

// Impersonated notes whom the request is served as. constraint is the right that allows it, "" if
// that is one to everything.
func (e *Event) Impersonated(u *User, constraint string) {
	if e == nil {
		return
	}
	info := userInfo(u)
	e.event.ImpersonatedUser = &info
	if constraint != "" {
		e.event.AuthenticationMetadata = &auditv1.AuthenticationMetadata{ImpersonationConstraint: constraint}
	}
}

// Annotate adds a note. The first value of a key stays.
func (e *Event) Annotate(key, value string) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.event.Annotations == nil {
		e.event.Annotations = map[string]string{}
	}
	if _, ok := e.event.Annotations[key]; !ok {
		e.event.Annotations[key] = value
	}
}

// Correct replaces what was noted under a key.
func (e *Event) Correct(key, value string) {
	if e != nil {
		e.mu.Lock()
		delete(e.event.Annotations, key)
		e.mu.Unlock()
		e.Annotate(key, value)
	}
}

// Request notes the body of a write as JSON: a patch as it is, an object with what
// it says about its own name.
func (e *Event) Request(body []byte, patch bool) {
	if e == nil {
		return
	}
	if ref := e.event.ObjectRef; ref != nil && !patch {
		var object struct {
			Metadata struct {
				Name, Namespace, UID, ResourceVersion string
			}
		}
		if json.Unmarshal(body, &object) == nil {
			m := object.Metadata
			fill(&ref.Name, m.Name)
			fill(&ref.Namespace, m.Namespace)
			fill(&ref.ResourceVersion, m.ResourceVersion)
			if ref.UID == "" {
				ref.UID = types.UID(m.UID)
			}
		}
	}
	if e.WantsRequest() {
		e.event.RequestObject = e.object(body)
	}
}

func fill(to *string, from string) {
	if *to == "" {
		*to = from
	}
}

// Response notes the answer as JSON.
func (e *Event) Response(body []byte) {
	if e.WantsResponse() {
		e.event.ResponseObject = e.object(body)
	}
}

// object is a body as it goes into the event: nothing that is no JSON.
func (e *Event) object(body []byte) *runtime.Unknown {
	if !json.Valid(body) {
		return nil
	}
	if e.omitManaged {
		body = withoutManagedFields(body)
	}
	return &runtime.Unknown{Raw: body, ContentType: runtime.ContentTypeJSON}
}

// withoutManagedFields drops metadata.managedFields of an object and of a list's
// items.
func withoutManagedFields(body []byte) []byte {
	var tree map[string]any
	if json.Unmarshal(body, &tree) != nil {
		return body
	}
	drop := func(v any) {
		if o, ok := v.(map[string]any); ok {
			if m, ok := o["metadata"].(map[string]any); ok {
				delete(m, "managedFields")
			}
		}
	}
	drop(tree)
	if items, ok := tree["items"].([]any); ok {
		for _, i := range items {
			drop(i)
		}
	}
	out, err := json.Marshal(tree)
	if err != nil {
		return body
	}
	return out
}

// Refused notes the Status that the request is answered with.
func (e *Event) Refused(s *metav1.Status) {
	if e != nil {
		kept := *s
		kept.TypeMeta = metav1.TypeMeta{}
		e.event.ResponseStatus = &kept
	}
}

// Started is called when the answer to a long-running request begins.
func (e *Event) Started(code int) {
	if e == nil || e.started {
		return
	}
	e.started = true
	e.code(code)
	e.stage(auditv1.StageResponseStarted, time.Now())
}

// Completed is called once, when the request is over.
func (e *Event) Completed(code int) {
	if e == nil {
		return
	}
	e.code(code)
	e.stage(auditv1.StageResponseComplete, time.Now())
}

// Panicked is called instead of Completed.
func (e *Event) Panicked(p any) {
	if e == nil {
		return
	}
	e.event.ResponseStatus = &metav1.Status{
		Code: http.StatusInternalServerError, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError,
		Message: fmt.Sprintf("APIServer panic'd: %v", p),
	}
	e.stage(auditv1.StagePanic, time.Now())
}

func (e *Event) code(code int) {
	if code == 0 {
		code = http.StatusOK
	}
	if e.event.ResponseStatus == nil {
		e.event.ResponseStatus = &metav1.Status{}
	}
	e.event.ResponseStatus.Code = int32(code)
}

// stage writes the event as it is now, unless the policy omits the stage.
func (e *Event) stage(s auditv1.Stage, at time.Time) {
	if slices.Contains(e.omit, internal.Stage(s)) {
		return
	}
	e.event.Stage = s
	e.event.StageTimestamp = metav1.NewMicroTime(at)
	line, err := json.Marshal(&e.event)
	if err != nil {
		e.log.observe.AuditLost("encoding")
		return
	}
	e.log.observe.AuditEvent()
	e.log.queue.add(append(line, '\n'))
}
