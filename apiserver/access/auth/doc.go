// Package auth says who asks and whether they may.
//
// The types to know:
//
//   - User is who asks. Users are immutable and shared between requests.
//   - Authentication turns the credentials of a request into a User: a client
//     certificate, a bearer token, or none (anonymous). A credential that is
//     presented and does not hold is ErrUnauthorized; it never becomes anonymous.
//   - Authorizer decides whether Attributes are allowed. Union asks several;
//     Default is the set in force before any role exists.
//
// The package knows nothing of HTTP answers except their errors: Forbidden and
// ErrUnauthorized are Status errors in upstream's words.
//
// DESIGN.md says how tokens of service accounts are checked.
package auth
