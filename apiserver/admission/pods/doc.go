// Package pods has upstream's plugins that look at Pods and are asked about each: Priority (a Pod has the priority and
// the preemption policy of its PriorityClass, and one PriorityClass at most is the default),
// DefaultTolerationSeconds (a Pod stays for a while on a node that is not ready or cannot be reached),
// PodTopologyLabels (a Pod that is bound to a node has its zone and region), and
// NodeDeclaredFeatureValidator (an update needs no feature that the node does not declare).
//
// They are written for trees, because upstream's own cost a Pod its way to internal types and back: 90 µs of
// CPU for three of them, beside 25. The other plugins of Pods are upstream's (package upstream).
package pods
