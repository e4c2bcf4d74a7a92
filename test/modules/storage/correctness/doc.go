// Package correctness is upstream's package of that name: a model of storage, a replay
// of what it did, and a validator of watches (k8s.io/apiserver/pkg/storage/testing/correctness,
// from 0.38 on). Nothing of it is in this directory. The program in run compiles upstream's files as if
// they were, by go's -overlay from the module cache, together with what is here: how a run
// that we have recorded is told to them. Both have the build tag "correctness".
//
// A module that requires 0.38 would take Go 1.27 and other versions of everything that
// test/modules/storage shares with the product; the package itself compiles beside 0.36.
package correctness
