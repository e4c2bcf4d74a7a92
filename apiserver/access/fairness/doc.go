// Package fairness decides when requests may run: API priority and fairness, with
// the semantics of KEP-1040 and the objects of flowcontrol.apiserver.k8s.io/v1.
// DESIGN.md says why it is not upstream's library.
//
// A request is classified by the first FlowSchema that matches it (match.go). That
// gives it a flow and a priority level. A level has a number of seats; a request
// takes one or more of them while it runs (estimate.go). What finds no free seat
// waits in one of the level's queues, chosen so that flows disturb each other
// little (shuffle.go), and the queues take turns by the work that they have been
// given (level.go); requests of several seats leave some for the others (wide.go).
// Levels lend each other what they do not use (share.go).
//
// The types to know:
//
//   - Controller holds the configuration in force and the levels. One per node.
//   - Class is what classification found; Ticket is a request's place in its level.
//
// Everything that clients can make grow is bounded: queues by their configured
// length, flows by the objects that administrators made.
package fairness
