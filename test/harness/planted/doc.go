// Package planted holds known bugs. Each is a way in which servers of this kind have been
// wrong. The tests plant them to prove that they would notice.
//
// The product does not contain the bugs and does not import this package. A file
// bugs/NAME.txt describes one bug and the edits that put it into the product's sources.
// Package overlay applies all of them and writes an overlay for the go command:
//
//	overlay=$(go run ./test/harness/planted/overlay)
//	go test -overlay $overlay ./test/sim -run 'TestPlanted$'
//
// Bugs that show in no virtual time name the test that finds them, in a line "Found by TEST of PACKAGE.", and TestFound of package
// overlay runs it.
//
// So one build has all bugs. Plant switches one of them on in this process, and the
// environment variable QUORATE_PLANTED in a program.
package planted
