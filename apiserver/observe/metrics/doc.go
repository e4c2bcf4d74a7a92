// Package metrics is what /metrics serves: the series that dashboards and alerts
// for Kubernetes API servers and etcd already query, under the same names, labels
// and buckets, and a few of our own that begin with quorate_.
//
// Metrics is the registry and the receiver of all events. Those that come with
// every request find their series by one map look-up without locks; nothing is
// formatted on the way. What can be read when somebody asks (the store's sizes,
// the role in Raft) is read at scrape time through a function (SetStore).
//
// testdata/contract.txt lists every family with its type, labels and buckets; a
// test compares it with what is registered.
package metrics
