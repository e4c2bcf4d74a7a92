// Package validation is what Kubernetes' own code says of the objects of built-in kinds:
// the functions of k8s.io/kubernetes/pkg/apis/GROUP/validation, chosen and given options as
// upstream's registry strategies do (pkg/registry/GROUP/KIND/strategy.go).
//
// Upstream publishes no other definition of what a valid Pod is. Rules of our own, as data
// and code, had 176 acceptances and 712 sets of causes among 5,962 requests that were not
// upstream's, and every release would have added to them. The module says that it is not
// made to be imported: what is used of it are functions from objects to lists of errors,
// which link no server, no client and no storage. The version is pinned to that of the
// k8s.io modules beside it (TestPins of cmd/node). Its go.mod names the other modules of its
// repository by a version that does not exist, so go list -m all fails; nothing that builds,
// tests, tidies or installs asks for that.
//
// What clients are told of valid objects is upstream's, too, asked of the same decoded object
// (warnings.go).
//
// The functions read upstream's internal types. An object is decoded from its tree into
// the type of k8s.io/api (package typed), which converts to the internal one by sharing nearly
// all of its memory. The fields of managedFields are left out: they are as large as the rest, and package
// fieldmanager has made them. What that would cost is saved where no answer can change, and
// TestAsUpstream holds all of it against everything decoded by upstream's converter and asked:
//
//   - What an update leaves as it was is decoded once, and both objects share it: upstream's
//     functions change nothing, and see by the address that it is equal.
//   - Metadata that are plain are not asked about a second time (meta.go).
//   - Plain Leases and ConfigMaps are neither decoded nor asked about (plain.go).
//
// BenchmarkServe, a write without TLS and Raft: user time, bytes and allocations, medians of
// three alternating runs of 3,000 writes on a machine that others kept busy, where everything takes
// about one and a half times as long as alone. First with rules of our own, then by upstream's
// functions with all decoded by its converter, then as it is:
//
//	create ConfigMap      67 µs  27 kB 149     88 µs  30 kB 202     51 µs  27 kB 147
//	update ConfigMap      61 µs  28 kB 163    105 µs  35 kB 294     68 µs  28 kB 159
//	create Pod           114 µs  47 kB 397    198 µs  58 kB 584    169 µs  55 kB 480
//	update Pod           154 µs  54 kB 431    373 µs  81 kB 862    211 µs  67 kB 567
//	create Deployment    112 µs  45 kB 362    198 µs  60 kB 596    150 µs  56 kB 477
//	merge-patch Lease     49 µs  18 kB 137     68 µs  24 kB 248     46 µs  18 kB 136
//
// What is left of a Pod and a Deployment is mostly upstream's own: the paths of fields that it
// makes before it knows whether there is an error, and expressions for names.
//
// Types to know: Kind is the validation of one kind, Of finds it.
package validation
