// Package conversion has webhooks convert custom resources between versions, and does
// nothing else: built-in versions are converted in package kinds, custom ones without a
// webhook in package crd. The DESIGN.md of package kinds puts the three in order.
//
// The types to know:
//
//   - Webhook is what a definition says of its webhook.
//   - Caller asks webhooks, and believes them nothing that they must not change. It is
//     bounded in time, in calls at a time and in bytes.
//   - Cache keeps what was converted, so that many readers of one revision cost one
//     call.
//
// The rules and the words of refusals are upstream's (k8s.io/apiextensions-apiserver,
// pkg/apiserver/conversion). Its code is not used: it brings the REST client and the
// metrics of a whole control plane, and asks without a context, without a bound on the
// answer and with one call per object.
//
// DESIGN.md says where it is called, and why upstream's client is not used.
package conversion
