package planted

import (
	"embed"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
)

// Built reports whether this build has the bugs. The overlay replaces it: built.txt.
const Built = false

// Bugs are the files bugs/NAME.txt: what each bug is, and the edits that make it.
//
//go:embed bugs/*.txt
var Bugs embed.FS

// All returns the names of the bugs.
func All() []string {
	files, err := Bugs.ReadDir("bugs")
	if err != nil {
		panic(err) // the files are in the binary
	}
	var all []string
	for _, f := range files {
		all = append(all, strings.TrimSuffix(path.Base(f.Name()), ".txt"))
	}
	return all
}

var foundBy = regexp.MustCompile(`(?m)^Found by (Test\w+) of ([\w/]+)\.$`)

// FoundBy returns the test that finds a bug and that test's package, as the bug's file says. Bugs without them are found in virtual
// time, by package sim.
func FoundBy(bug string) (test, pkg string) {
	b, err := Bugs.ReadFile("bugs/" + bug + ".txt")
	if err != nil {
		panic(err) // the files are in the binary
	}
	if m := foundBy.FindSubmatch(b); m != nil {
		return string(m[1]), string(m[2])
	}
	return "", ""
}

// variable names the bug that a program has.
const variable = "QUORATE_PLANTED"

var current atomic.Pointer[string]

// init removes the variable before main begins, because the product refuses variables
// QUORATE_* that it does not know. A program that was built without the overlay still
// refuses this one, so it cannot be mistaken for one that has a bug.
func init() {
	Plant(os.Getenv(variable))
	if err := os.Unsetenv(variable); err != nil {
		panic(err)
	}
}

// On reports whether a bug is planted.
func On(bug string) bool { return *current.Load() == bug }

// Plant plants a bug instead of the one before; "" plants none. It panics if this build
// does not have the bug, because a test would look for it in vain.
func Plant(bug string) {
	switch {
	case bug == "":
	case !slices.Contains(All(), bug):
		panic(fmt.Sprintf("planted: there is no bug %q", bug))
	case !Built:
		panic(fmt.Sprintf("planted: %s: this build has no bugs: build it with the overlay of test/harness/planted/overlay", bug))
	}
	current.Store(&bug)
}
