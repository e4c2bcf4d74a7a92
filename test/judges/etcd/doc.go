// Package etcd has our runs judged by etcd's own judges: the model and the validators of its
// robustness tests (go.etcd.io/etcd/tests/v3/robustness), which know nothing of this store.
// README.md says what is told to them and how, and what they cannot be told.
package etcd
