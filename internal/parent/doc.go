// Package parent knows the process that has started this one. It imports nothing but syscall, and so it
// is initialized before the many packages of this program, which take a tenth of a second and more: the
// parent may be gone by then.
//
// To know: [First].
package parent
