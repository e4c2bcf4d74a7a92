// Command mutate changes operators of a package, one at a time, and sees which changes no test
// notices: such a mutant lives, and shows code that nothing holds.
//
//	go run ./test/harness/mutate [-n 150] [-seed 1] [-also PACKAGES] [-o FILE] [-only FILE] PACKAGE...
//
// The operators are those of gremlins (github.com/go-gremlins/gremlins): comparisons, their bounds,
// arithmetic, steps, negation, && and ||, break and continue. Mutants are compiled as build overlays,
// so that the tree stays as it is and the build cache holds all but one package. A random sample
// (-n of them, by -seed) makes big packages affordable; gremlins has neither.
//
// A mutant is tested by the package's own tests first, then by those of the packages that
// companions.txt and -also name. Mutants that cannot be told from the original are listed in
// the files of equivalent with the reason; they are not run.
package main
