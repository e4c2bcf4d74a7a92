// Package storage has two plugins about volumes: DefaultStorageClass (a claim that is created without a class
// gets the one that is marked as the default) and StorageObjectInUseProtection (volumes, claims and
// VolumeAttributesClasses get a finalizer, which kube-controller-manager takes away when nothing uses
// them any more, so that what is in use is not deleted).
//
// Upstream's own are not called: they bring 36 packages and k8s.io/mount-utils for a few helper functions.
package storage
