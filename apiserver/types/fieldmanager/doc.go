// Package fieldmanager says who set which fields of an object: it keeps
// metadata.managedFields through every write, and merges what is applied
// (KEP-555, server-side apply).
//
// The rules are the published ones: ownership, conflicts and merging are
// sigs.k8s.io/structured-merge-diff's, and what surrounds them (the cap on
// managers, before-first-apply, the way from client-side apply, what of the
// metadata nobody owns) is k8s.io/apimachinery's managedfields. This package
// gives them our decoded trees and our schemas. What nearly all writes do is decided on
// the stored form, without the libraries, and compared with them in tests: quick.go,
// quickapply.go and walk.go.
//
// DESIGN.md says which writes are decided without the library.
package fieldmanager
