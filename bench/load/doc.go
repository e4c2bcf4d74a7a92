// Program load measures a running cluster of Quorate: operations per second,
// latency, and above all the CPU time that all server processes together spend
// per operation, beside the figures of kube-apiserver with etcd.
//
// It reads the cluster.json of `quorate dev`, works through the chosen
// scenarios in order, and prints a table or JSON. It exits with 1 if a row
// costs more than its limit or had errors, and with 2 if it could not measure.
//
// The generator shares the machine with the servers, so it is kept cheap: raw
// HTTP/2, bodies encoded beforehand, answers scanned rather than decoded.
package main
