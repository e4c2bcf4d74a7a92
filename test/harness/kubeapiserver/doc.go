// Package kubeapiserver starts a real kube-apiserver with its etcd, for those who hold Quorate's
// answers against it. `make peers` builds the two programs.
//
// There is no kube-controller-manager beside it. The package makes the service account
// "default" of each namespace, which Pods need, and nothing else.
//
// Functions to know: [Start], [Server.Stop].
package kubeapiserver
