// Package commands runs the commands of quorate as people type them: playgrounds,
// settings, the bench commands, and what they print after a mistake, which stands
// in testdata/mistakes.txt.
package commands
