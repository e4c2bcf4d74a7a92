// Package builtin is what kinds have as code, a file a kind. Whatever is not here is the
// same for every kind, or data (package kinds): nothing else looks at a kind's name.
//
// The types to know:
//
//   - Strategies is the table: an objects.Strategy for each kind that has code, by
//     Resource.CodeName. Custom is the one of all custom resources.
//   - Roles, Tokens and TokenReviewer are what some kinds need of others.
//
// What a kind has as code sees objects and an objects.Op: the user, the state, the
// conditions of the write. It never sees the request, and what it answers is sent by
// others.
//
// Prepare and Validate of a strategy see the object alone: they are pure, and tested as
// tables (testdata). What needs a store and a user is tested on a store in memory, without HTTP
// (testdata/operations, in the language of package objectstest). They work on decoded trees that have been through
// package schema, and say what no schema can state: fields that the server generates, and
// relations between fields. They are no room of their own, because the reader of a kind
// wants all of its code in one place, and the types of Strategy keep them pure already.
// Package service below has a room: the node reads its flags by it.
package builtin
