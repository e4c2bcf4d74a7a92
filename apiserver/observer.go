package apiserver

import (
	"time"

	"github.com/quorate/quorate/apiserver/types/conversion"
	"github.com/quorate/quorate/apiserver/wire/request"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Observer is told what the server does; the metrics are made from it. Methods
// are called on the request's goroutine, must be quick and must not block. They
// are safe for concurrent use. Arguments are not to be kept.
type Observer interface {
	// RequestStarted is called once the request is known to be one that the
	// server routes, before it waits for seats.
	RequestStarted(k *request.Kind)
	// RequestDone is called once for each RequestStarted.
	RequestDone(k *request.Kind, e request.End)
	// RequestRefused is called for a request that was not admitted (429).
	RequestRefused(mutating bool, reason string)
	// WaitedForSlot is called when a request has waited for its turn to compute (package slots).
	WaitedForSlot(d time.Duration)
	// InFlight is called whenever the admitted requests or their bytes change.
	InFlight(mutating bool, requests int, bytes int64)
	// WatchEvents is called after each flush of a watch: events written since the
	// last one, and their bytes.
	WatchEvents(k *request.Kind, events int, bytes int64)
	// WriteRetried is called when a write lost a race and is computed again.
	WriteRetried(k *request.Kind)
	// Deprecated is called for each request for a version that is on its way out.
	// removedRelease may be empty.
	Deprecated(k *request.Kind, removedRelease string)
	// Converted is called after each call of a conversion webhook.
	Converted(e *conversion.Call)
	// Panicked is called for each contained panic.
	Panicked(k *request.Kind)
	// Gone is called when a resource is not served any more, and again when all requests for it have ended. last says
	// that no version of it is served. It is not called on the goroutine of a request.
	Gone(gvr schema.GroupVersionResource, last bool)
}

// noObserver is the Observer of a server that nobody watches.
type noObserver struct{}

func (noObserver) RequestStarted(*request.Kind)           {}
func (noObserver) RequestDone(*request.Kind, request.End) {}
func (noObserver) RequestRefused(bool, string)            {}
func (noObserver) WaitedForSlot(time.Duration)            {}
func (noObserver) InFlight(bool, int, int64)              {}
func (noObserver) WatchEvents(*request.Kind, int, int64)  {}
func (noObserver) WriteRetried(*request.Kind)             {}
func (noObserver) Deprecated(*request.Kind, string)       {}
func (noObserver) Converted(*conversion.Call)             {}
func (noObserver) Panicked(*request.Kind)                 {}
func (noObserver) Gone(schema.GroupVersionResource, bool) {}
