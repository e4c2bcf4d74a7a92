// Package nodeauthorizer is upstream's node authorizer: a kubelet may read what the Pods on its node
// need, and nothing that only others do.
//
// The types to know:
//
//   - Authorizer decides, from this node's state.
//   - references are what one Pod lets its node read.
//
// Upstream follows six informers and keeps a graph of all that Pods name. Here nothing runs: a
// question is about one node, so what is looked at are the Pods of that node, by the index of Pods
// that lists of kubelets use. DESIGN.md says what that costs.
package nodeauthorizer
