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
//
// # Advisories
//
// Mistakes that were found in Go's HTTP/2 server can be made here again, and a fix of net/http does not fix this package.
// These are the advisories about that server since 2023, as golang.org/x/vulndb has them, with the test that covers each or the
// reason why it does not apply:
//
//   - GO-2023-1495 (CVE-2022-41721, requests in the body of an upgrade to h2c): does not apply. A connection comes here when ALPN
//     in its TLS handshake has said h2; there is no upgrade, and no HTTP/2 without TLS.
//   - GO-2023-1571 (CVE-2022-41723, the decoder of headers takes quadratic time): hpack of golang.org/x/net decodes here too, and
//     go.mod has a version with the fix, 0.7.0.
//   - GO-2023-2102 (CVE-2023-39325, CVE-2023-44487, rapid reset): the handlers at work are bounded, not the streams that are open.
//     TestEarlyResets, which has resets by the server too (CVE-2025-8671, of other servers), and TestLateStreams.
//   - GO-2024-2687 (CVE-2023-45288, CONTINUATION without end): TestContinuationFlood.
//   - GO-2026-4559 (CVE-2026-27141, a frame of an unknown type panics): TestUnknownFrames.
//   - GO-2026-6089 (CVE-2026-56853, no time limit for the preface of HTTP/2 without TLS): does not apply, as the first one. The
//     preface has 10 seconds, and the settings behind it 2.
//   - GO-2026-6603 (CVE-2026-78659, the header Trailer fills a map): no such map is made. TestTrailersAreDropped.
//   - GO-2026-6611 (CVE-2026-78669, each SETTINGS_INITIAL_WINDOW_SIZE is work for all streams): this package had the mistake.
//     TestInitialWindowIsCheap, and for the rules of windows TestInitialWindowTooLarge and TestInitialWindowWakes.
//   - GO-2026-6612 (CVE-2026-78663, a window is given back twice): TestWindowIsGivenBackOnce.
//   - GO-2026-6617 (CVE-2026-97032, the encoder of headers is used by two goroutines): it is used under the connection's lock only.
//     TestHeaderTableOfManySizes, with the race detector.
//
// GO-2026-4918, GO-2026-5026 and GO-2026-6610 are about the client of the same packages. FuzzFrames compares this server with
// net/http's on any frames.
package h2
