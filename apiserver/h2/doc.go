// Package h2 serves HTTP/2 connections of an http.Server with less processor time than net/http's
// own implementation.
//
// net/http has a goroutine per connection through which every frame goes, in both directions: a small
// answer is some nine hand-overs between goroutines, and as many chances that a thread sleeps or is
// woken. Here the goroutine that reads a connection starts a handler, and the goroutine of the handler
// encodes its own answer, HEADERS and DATA together, and writes it to TLS. The one that finds nobody
// writing writes for all: answers that are ready at the same time share a TLS record and a system call.
// Goroutines of handlers are used again, with the stacks that they have grown.
//
// Frames are read, checked and decoded by golang.org/x/net/http2 and its hpack. What is here is the state
// of streams, both flow controls, and what clients may not do: the bounds are those of net/http, by the same
// numbers, but for frames (64 KiB) and refusals by this package, which wait for no client: no handler counts them.
//
// Not served, because nobody here asks for it: push, trailers (those of requests are dropped), and
// CONNECT with a protocol.
//
// Types to know: [Configure], conn (reading, and the lock over everything that two goroutines of
// a connection share), queue (streams that wait for what they share take turns) and stream, which is also the http.ResponseWriter.
package h2
