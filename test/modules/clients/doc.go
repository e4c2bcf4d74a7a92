// Package clients holds tests with the clients that users have, against clusters of
// real processes: client-go's and controller-runtime's clients, informers and
// caches (TestClientGo), both through restarts, directly and through a load
// balancer (TestRollingRestart), an operator that outlives the cluster's leader and
// its own (TestOperator) and that does not outlive its Pod (TestInCluster), the
// JavaScript client (TestNode, in node/) and the Python client (TestPython, in python/). TestInCluster
// needs a kernel that lets the user have mounts of its own (user namespaces).
//
// It is a module of its own because of controller-runtime's dependencies. The
// harness comes from package test/harness/cluster of the main module, and nothing else does.
//
// Everything is counted twice: by the servers, over all lives of their processes,
// and below the clients, at their transports. The environment variable STORY=1
// logs every read that a client has made, KLOG=4 what client-go thinks of it.
package clients
