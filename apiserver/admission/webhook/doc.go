// Package webhook is MutatingAdmissionWebhook and ValidatingAdmissionWebhook: upstream's own
// plugins, fed from this node's state, with dispatchers of our own: upstream's make each review by
// reflection and send it through client-go in a goroutine. What comes of a write is the same
// (TestJudge has upstream's dispatchers for a judge).
//
// The types to know:
//
//   - Mutating and Validating are upstream's plugins as those of package admission.
//   - source gives upstream's plugin the configurations, without an informer: before every
//     decision it is told of what has changed. So what it keeps for each webhook (compiled match
//     conditions, connections) lives on, and no webhook is forgotten or asked too long.
//   - index says which writes the rules of any webhook match: upstream's plugin is asked about no
//     others, so that webhooks of other resources cost a write a look into a table.
//   - fromFiles are the webhooks of files, which upstream's plugin asks first.
//   - mutatingDispatcher and validatingDispatcher ask the webhooks that match; a call is one of
//     them, its usual answer is read by hand, and everything else by upstream's client.
//   - Config.wrapped bounds what webhooks answer (package answers), and dials them.
package webhook
