// Package modes measures what each way to read costs and how fresh its answers
// are: Any, Not older than, Exact and Most Recent, get and list, on a leader, a
// follower and a non-voter, all at once and under writes.
//
// The types to know:
//
//   - Options say what is measured, Cluster where. Run does it and returns a Report.
//   - A cell is one mode, one verb and one node. It has a connection of its own, as a
//     client of its own would have.
//   - The ledger knows every write that was acknowledged and when. It is what
//     answers are compared with: versions behind, and milliseconds since the first
//     acknowledged write that an answer lacks.
//   - Report is the JSON; its Doc, WriteCSV and Histograms show the same.
//
// The load is open: reads are due at random times that were drawn beforehand,
// whatever the servers do, and their latency counts from when they were due. A
// server that stalls is charged for every read that it made wait.
//
// What the modes promise is checked while it is measured. A Most Recent or Not
// older than answer that lacks an acknowledged write, an Exact one of another
// revision, or an Any one staler than its own header says makes the report a
// failed one.
package modes
