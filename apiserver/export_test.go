package apiserver

// NoObserver is for tests that want to be told of some things only.
type NoObserver = noObserver
