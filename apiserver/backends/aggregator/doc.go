// Package aggregator has requests of other servers' APIs answered by those: an APIService with a
// Service says that a version of a group is served there.
//
// The types to know:
//
//   - Aggregator knows the APIServices in this node's state. Of finds the server of a group
//     version, Serve hands a request on to it, Check says whether it answers, and Run fetches
//     what it says about its resources.
//   - Remote is an APIService with a Service.
//
// Servers there are other people's programs: what they send is bounded in bytes and time, and what they
// say about themselves is fetched beside all requests. DESIGN.md says which APIService wins, and who
// believes whom.
package aggregator
