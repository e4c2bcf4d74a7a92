// Package egress has the dialers of what this server calls, by purpose.
//
// Types to know: [Dialers], and [Purpose]. [Cluster] is for what runs in the cluster: kubelets,
// Services, Pods, webhooks that are named by their Service, aggregated servers. [ControlPlane] is for
// what a URL names: webhooks. These are the purposes of upstream's EgressSelectorConfiguration, a
// file of which may say that one of them leads through a proxy: HTTP CONNECT over TCP or a Unix
// socket, or Konnectivity's gRPC over a Unix socket. What it does not name is dialled directly.
//
// Upstream's library reads the file, checks it and has the metrics. The dialers are this
// package's: upstream's CONNECT does not end with its context, so that a proxy that does not
// answer would keep a goroutine and a connection for each call, for ever, and it panics at the start if
// the URL of a proxy is http://.
package egress
