// Package faults measures what clients see of a cluster to whose nodes faults
// happen: for how long writes and reads are not served, when the service is what
// it was before, and how long a node takes to come back.
//
// The types to know:
//
//   - A Fault says what happens to which node, and when. ParseFault reads one.
//   - Options say how often the faults are played and under which load, Target
//     where: a cluster, and who can do things to its nodes. Run does it.
//   - A sample is one request with its times and its outcome. All figures follow
//     from the samples of a run (windows.go), and the bins of the time line too.
//   - Report is the JSON; its Doc and WriteCSV show the same.
//
// The load is open: requests are due at random times, whatever the servers do, and
// their latency counts from when they were due. Nothing is tried again: an error is
// what a client without retries sees.
//
// What the modes promise is checked on every answer, as in package modes: a Most
// Recent read lacks no acknowledged write, whatever happens meanwhile.
package faults
