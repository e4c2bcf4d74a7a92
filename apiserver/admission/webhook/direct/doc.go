// Package direct sends reviews to webhooks on connections of its own, in the goroutine of who asks:
// net/http's client needs one or two more of them for each request, and several times the work.
//
// Upstream's client stays in charge. It makes the first call, from which the way to the webhook is
// learned. It is given every answer that is not a usual one, as if that had come on its own
// connection: so errors, retries and bounds are its own. And it alone sends reviews of v1beta1, whose
// answers need not name the review.
//
// The types to know:
//
//   - Client is the end of the chain of transports that upstream makes for a webhook.
//   - Exchange is one review that was sent on a connection.
package direct
