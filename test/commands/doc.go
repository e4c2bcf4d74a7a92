// Package commands runs the commands of quorate as people type them: playgrounds,
// settings, the bench of read modes, and what they print after a mistake, which stands
// in testdata/mistakes.txt.
package commands
