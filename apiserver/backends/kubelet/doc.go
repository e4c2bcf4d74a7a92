// Package kubelet is the way from this server to kubelets, and through their nodes to Pods: where a
// kubelet is, how it is reached, and the handlers that carry exec, attach, port-forward, logs and
// proxied requests.
//
// The package reads no state: it is given the objects, as fresh as the request asks, and says what
// follows from them. What it proxies with is upstream's library (k8s.io/apimachinery/pkg/util/proxy,
// k8s.io/apiserver/pkg/util/proxy, k8s.io/streaming); what is here is what that library leaves to
// trust: bounds for what kubelets answer, and the end of what nobody waits for any more.
//
// The types to know: Client has the transports, Kubelet is where one is, Location where a request goes,
// and Handlers are made of Locations. DESIGN.md has the decisions.
package kubelet
