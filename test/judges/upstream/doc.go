// Package upstream holds what this project says by itself about Kubernetes' objects to Kubernetes' own functions, in one
// process: a change of go.mod alone makes its tests fail, with a list of what has changed. It has tests only.
package upstream
