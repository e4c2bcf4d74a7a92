// Package writes holds what becomes of a write here to Kubernetes' own code, in one process: the strategies of its
// registries, its admission plugins and its quota. It is a module of its own, because they link etcd's client. It has tests only.
package writes
