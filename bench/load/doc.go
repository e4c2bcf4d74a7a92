// Package load measures servers under load: operations per second, latency, errors, and
// above all the CPU time that all server processes together spend per operation.
//
// The types to know:
//
//   - Options say what is measured, Target where: a cluster of Quorate, servers of
//     kube-apiserver, or members of etcd, which know plain keys. Run does it.
//   - A row is one line of the report: one verb, or a mix of them, or what has a shape of its
//     own (watchers, creates under admission rules). verb.go has what one operation is.
//   - closedLoop lets workers call one operation after the other: it finds the peak, and its
//     latencies are those at the peak. openLoop sends operations when they are due, whatever
//     the servers do, and counts their latency from then on. sweep raises the rate of an
//     open loop until something gives: the knee.
//   - Report is the JSON; its Doc, WriteCSV and Histograms show the same.
//
// The generator shares the machine with the servers, so it is kept cheap: raw HTTP/2, bodies
// encoded beforehand, answers scanned rather than decoded.
package load
