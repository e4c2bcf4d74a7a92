// Package kubectl drives a cluster with programs of Kubernetes as they are: kubectl
// of several minors, with manifests of other projects, and KWOK, which plays kubelets.
// testdata/kubectl.txt is a session of kubectl's commands.
package kubectl
