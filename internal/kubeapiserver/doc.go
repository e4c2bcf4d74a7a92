// Package kubeapiserver is `quorate kube-apiserver`: a server that is started with kube-apiserver's
// flags by tools that start kube-apiserver, mostly for tests: envtest, kwokctl, kubectl's test/cmd.
//
// flags.txt names every flag of kube-apiserver, its type and what becomes of it: mapped to a setting of the
// node, ignored with a line in the log, or refused with the reason, if going on without it would mislead.
//
// Types to know: [Options], the flags, and what they say of the nodes; [Run] runs them in this process.
//
// DESIGN.md says where the data is, and whose end ends the server.
package kubeapiserver
