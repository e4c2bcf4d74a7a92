// Package judges holds what the judges of other projects have in common: which recorded runs they
// read, and what they must refuse. The judges themselves stand in modules of their own
// (test/judges/etcd, test/modules/storage/correctness), because what they import is no dependency of the
// product.
//
// The directories below are judges too: differential compares answers with those of a real
// kube-apiserver, upstream and writes hold what is done here to Kubernetes' own functions, testcmd runs kubectl's own contract suite, load the load tools of others. planted has recorded runs with
// planted bugs.
package judges
