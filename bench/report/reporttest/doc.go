// Package reporttest has what tests ask of the reports of all bench commands.
package reporttest
