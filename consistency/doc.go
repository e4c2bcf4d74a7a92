// Package consistency decides how fresh a read must be, and waits until it is.
//
// The types to know:
//
//   - PlanGet, PlanList and PlanWatch turn a request's parameters into a Plan or
//     a Refusal. They are pure: no clock, no state, no waiting. What they decide is
//     written down cell by cell in testdata/*.txt.
//   - Reader.Await turns a Plan into the revision to read as of. All the waiting
//     of the read path is there: linearizable indexes, the local state catching
//     up, and the bounds on both.
//   - Token is a list's position between pages, as clients carry it.
//   - Rounds shares one expensive call among everybody who arrived before it.
//
// The package knows neither the store (it declares Source) nor Kubernetes' Go
// types: its errors carry what is needed to make the Status that upstream sends.
package consistency
