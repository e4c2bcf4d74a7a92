package apiserver

import "time"

// Observer is told what the server does; the metrics are made from it. Methods
// are called on the request's goroutine, must be quick and must not block. They
// are safe for concurrent use. Arguments are not to be kept.
type Observer interface {
	// RequestStarted is called once the request is known to be one that the
	// server routes, before admission. longRunning is true for watches.
	RequestStarted(k *RequestKind)
	// RequestDone is called once for each RequestStarted.
	RequestDone(k *RequestKind, e RequestEnd)
	// RequestRefused is called for a request that was not admitted (429).
	RequestRefused(mutating bool, reason string)
	// InFlight is called whenever the admitted requests or their bytes change.
	InFlight(mutating bool, requests int, bytes int64)
	// WatchEvents is called after each flush of a watch: events written since the
	// last one, and their bytes.
	WatchEvents(k *RequestKind, events int, bytes int64)
	// WriteRetried is called when a write lost a race and is computed again.
	WriteRetried(k *RequestKind)
	// Deprecated is called for each request for a version that is on its way out.
	// removedRelease may be empty.
	Deprecated(k *RequestKind, removedRelease string)
	// Converted is called after each call of a conversion webhook.
	Converted(e *ConversionEnd)
	// Panicked is called for each contained panic.
	Panicked(k *RequestKind)
}

// RequestKind is what a request is counted under. For paths that are no
// resource only Verb and Path's first segment (as Subresource "/livez") are set.
type RequestKind struct {
	Verb        string // get, list, watch, create, ...; the method in lower case for other paths
	Group       string
	Version     string
	Resource    string // empty for unknown resources: clients must not invent series
	Subresource string
	Scope       string // cluster, namespace, resource, or empty
	Component   string // "apiserver"
	DryRun      bool
	LongRunning bool
}

// RequestEnd is how a request ended.
type RequestEnd struct {
	Code          int
	Duration      time.Duration
	RequestBytes  int64
	ResponseBytes int64
}

// ConversionEnd is how a call of a conversion webhook ended.
type ConversionEnd struct {
	Definition, From, To string // names; From is the version of the first object
	// Failure is empty for success, else upstream's word for what went wrong.
	Failure  string
	Duration time.Duration
}

// noObserver is the Observer of a server that nobody watches.
type noObserver struct{}

func (noObserver) RequestStarted(*RequestKind)          {}
func (noObserver) RequestDone(*RequestKind, RequestEnd) {}
func (noObserver) RequestRefused(bool, string)          {}
func (noObserver) InFlight(bool, int, int64)            {}
func (noObserver) WatchEvents(*RequestKind, int, int64) {}
func (noObserver) WriteRetried(*RequestKind)            {}
func (noObserver) Deprecated(*RequestKind, string)      {}
func (noObserver) Converted(*ConversionEnd)             {}
func (noObserver) Panicked(*RequestKind)                {}
