// Package upstream gives upstream's dynamic plugins (webhooks, policies) what they ask of a
// server: kinds and their conversion, namespaces and an authorizer, all of it read from this
// node's state at the moment of the question.
//
// The types to know:
//
//   - Kinds are the served kinds on decoded trees: upstream's ObjectInterfaces, and Fit.
//   - Namespaces are a lister without an informer, and the client behind it.
//   - Authorizer is this server's authorizer in upstream's words.
package upstream
