// Package storage holds Quorate against Kubernetes' own contract for storage:
// the functions of k8s.io/apiserver/pkg/storage/testing, which upstream runs
// against etcd and against its watch cache, run here against a cluster of three
// nodes. README.md is the list of these functions, with what each gave.
//
// The package is a module of its own, so that k8s.io/apiserver and what comes
// with it are no dependency of the product.
//
// How a call travels. The adapter is a storage.Interface over the nodes:
//
//   - Get, GetList and Watch are requests to the API server of a node, over
//     HTTP/2 and TLS. Parameters, plans, waiting, selectors, paging, event
//     transitions, bookmarks and refusals are all the product's.
//   - Create, GuaranteedUpdate and Delete go below the API's verbs, because those
//     give objects a uid and a creationTimestamp that the suite does not expect:
//     package storage decides, as for every verb, and the store replicates.
//
// What the adapter does itself is in README.md, too.
//
// The nodes are put together here, without package node: the suite counts revisions, and a whole node
// writes by itself (its namespaces, roles, flow control) and serves Kubernetes' resources
// instead of the suite's.
package storage
