// Package crd makes resources of CustomResourceDefinitions.
//
// The types to know:
//
//   - Registry is the resources that a node serves now: the built-in ones, and
//     those of the established definitions in the node's state. It is a function
//     of that state alone, renewed by the first who asks after a change, so it
//     needs no controller and cannot fall behind what clients see.
//   - Definition is one stored definition, as far as serving needs it.
//   - Version is one version of a definition: what its objects have to be like.
//     Its schema is compiled on first use.
//   - AcceptNames decides about names: what upstream's naming controller does.
//
// The rules of schemas are the published library's, k8s.io/apiextensions-apiserver.
//
// DESIGN.md says why names are decided by the leader, and how versions are stored.
package crd
