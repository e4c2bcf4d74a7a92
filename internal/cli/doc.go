// Package cli is what the programs quorate and quorate-bench share of their command lines: arguments
// and flags that explain what is wrong with them, notes on exit codes, files and variables, completion
// scripts, man pages, and the exit code of the process.
package cli
