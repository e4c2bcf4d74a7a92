// Package request is what a request asks for, parsed: its path, its parameters, and
// what it is counted under.
//
// The types to know:
//
//   - Info says what a path and a method ask for, in the words of RBAC.
//   - Options are the parameters that the verbs understand.
//   - Kind and End are what a request and its end are counted under.
//
// Info and Options are parsed in place, and ordinary ones without an allocation: they are
// part of every request. Errors are Status errors. Nothing here knows which resources
// there are: what is parsed may name none.
package request
