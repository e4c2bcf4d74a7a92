// Package apiserver is the HTTP side of Quorate: requests come in, store
// operations go out, and the stored bytes are sent as they are.
//
// The types to know:
//
//   - Server is the http.Handler. One per node; it owns the janitor of slow
//     watchers and nothing else that runs.
//   - call is one request on its way through the door to a verb. There is one
//     file per verb; update, patch and apply share one function, modify (update.go). It
//     embeds an objects.Op, which is what it does with objects; what the node does by
//     itself has an Op alone, and no call is ever made without a request.
//   - Store is what the API needs of the replicated store.
//
// The rooms below it that a write goes through:
//
//   - request: what is asked for, parsed.
//   - objects: what is done with objects, without HTTP; storage is the loop around it.
//   - builtin: what kinds have as code. kinds, schema: what they have as data.
//   - admission: what may change or refuse a write; an interface; each plugin is a package below it.
//   - tree: decoded objects, their metadata and conditions.
//
// The way of a request: ServeHTTP (handler.go) goes through the steps of the door, a
// list, in order. The last one, dispatch (dispatch.go), finds the verb and reads its
// parameters (package request). The verb asks package consistency for a plan and a
// revision, and reads one immutable state.
//
// The way of a write (package objects): every decision is made against a version that
// this node has, and the log entry carries the condition that the version is
// still the newest. Whatever a client would be refused for, or answered without
// a write, because of what the state looks like is confirmed against a state
// that is known to be current first. See DESIGN.md.
package apiserver
