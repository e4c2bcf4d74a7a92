// Package members lets nodes join, vote, move to other addresses, go, and come back
// from a backup; and proves that those who were removed, and secrets that were replaced,
// have no say any more.
package members
