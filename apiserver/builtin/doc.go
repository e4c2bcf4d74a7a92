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
// others. Relations between fields that no schema can state, and that need nothing but the
// object, are in package rules.
package builtin
