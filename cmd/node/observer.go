package main

import (
	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/metrics"
)

// observer gives the metrics what package apiserver observes. The two describe
// a request in the same words, so that the conversions cost nothing.
type observer struct{ m *metrics.Metrics }

var _ apiserver.Observer = observer{}

func (o observer) RequestStarted(k *apiserver.RequestKind) {
	o.m.RequestStarted((*metrics.RequestKind)(k))
}

func (o observer) RequestDone(k *apiserver.RequestKind, e apiserver.RequestEnd) {
	o.m.RequestDone((*metrics.RequestKind)(k), metrics.RequestEnd(e))
}

func (o observer) RequestRefused(mutating bool, reason string) { o.m.RequestRefused(mutating, reason) }

func (o observer) InFlight(mutating bool, requests int, bytes int64) {
	o.m.InFlight(mutating, requests, bytes)
}

func (o observer) WatchEvents(k *apiserver.RequestKind, events int, bytes int64) {
	o.m.WatchEvents((*metrics.RequestKind)(k), events, bytes)
}

func (o observer) WriteRetried(k *apiserver.RequestKind) { o.m.WriteRetried((*metrics.RequestKind)(k)) }
func (o observer) Deprecated(k *apiserver.RequestKind, removed string) {
	o.m.Deprecated((*metrics.RequestKind)(k), removed)
}
func (o observer) Converted(e *apiserver.ConversionEnd) { o.m.Converted((*metrics.ConversionEnd)(e)) }
func (o observer) Panicked(k *apiserver.RequestKind)    { o.m.Panicked((*metrics.RequestKind)(k)) }
