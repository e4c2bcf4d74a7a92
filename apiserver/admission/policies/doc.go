// Package policies evaluates ValidatingAdmissionPolicies and MutatingAdmissionPolicies, by
// upstream's library (k8s.io/apiserver/pkg/admission/plugin/policy), on this node's state.
//
// The types to know:
//
//   - Validating and Mutating are the plugins.
//   - source are the compiled policies with their bindings, as a view of their tables: a
//     policy that is visible at this node counts in every decision after it. Upstream's
//     source looks every second.
//   - conditions are compiled expressions, evaluated on values that are made once for a decision.
//   - matcher is upstream's, with selectors that are parsed once.
//   - params read what bindings refer to. They stand for an informer, and hold no objects but
//     what was decoded.
//   - converters merge apply configurations by the schemas of what is served.
//
// Policies from files (static.go) are asked first, and cannot be changed through the API.
package policies
