// Package churn is about what is left of objects, connections and requests that come and go: cycles of
// every kind of churn run on three nodes, and no node's memory, metrics, goroutines, file descriptors or
// files grow with the number of cycles.
package churn
