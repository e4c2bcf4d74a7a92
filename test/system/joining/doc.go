// Package joining tests how machines join as nodes of Kubernetes, and how users get certificates, through
// ports and the command line: what kubeadm join and a kubelet do, step by step, by client-go; and kubeadm
// itself, where KUBEADM names it.
package joining
