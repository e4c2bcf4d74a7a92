// Package bootstraptoken recognizes bootstrap tokens: bearer tokens ID.SECRET that are Secrets of
// type bootstrap.kubernetes.io/token in kube-system, by which a kubelet asks for its first certificate.
//
// The type to know is Authenticator. It reads the Secret in this node's own state at each request, by
// upstream's rules; nothing is cached and nothing runs. A token that this node has not heard of is
// refused without asking the others: anybody could have a node ask a quorum by guessing, and who joins
// tries again.
package bootstraptoken
