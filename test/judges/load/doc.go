// Program load has the load tools of other projects (kube-burner, kperf and ClusterLoader2) put
// their loads on three servers, and says what each load cost these and what failed. run.sh starts
// the servers, of Quorate and of kube-apiserver with etcd in the same way, and prints both side by side.
//
// The tools are not built here: they are programs of their own, which TOOLS names. Their
// configurations are here where the published ones need what a cluster without nodes has not: Pods that run.
package main
