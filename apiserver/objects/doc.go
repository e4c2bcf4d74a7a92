// Package objects is the API without HTTP: what a request, or the node itself, does with
// objects. It decides here, on the newest version that this node has, and what it decides
// is checked in the log: each entry carries the condition that the version is the newest
// still. See DESIGN.md.
//
// The types to know:
//
//   - Op is one operation on objects: who asks, for what, with which options. A request
//     embeds one; System, Derived and Listed make those that no client asked for itself.
//   - Store is what operations decide on and write to. One per server.
//   - Strategy is what the objects of one kind have as code. The table comes from outside.
//   - Source is how a client says what an object is to be (Put, Patch, Apply), Target what of
//     the object it may change (Whole, PartOf, Scale). Modify puts one to the other.
//   - Change is what was decided about one object, Written what came of it.
//   - Client is all of it for the loops of the node itself, in the types of k8s.io/api.
//   - Selection is which objects of a table a list or a watch is about.
//
// The life of a write, in the order of the calls: Create, or Modify and Replace; complete
// (create.go) fills in, admits, prepares, validates and allocates; EncodeChange encodes once;
// GuaranteedUpdate (write.go, around package storage) proposes, and begins again if the race
// was lost. Delete decides between removing an object and the first phase of its deletion.
//
// An operation is for one goroutine, all else is safe for concurrent use. Errors for
// clients are Status errors.
package objects
