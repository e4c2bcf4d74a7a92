// Package watches proves what a watch shows in each form that clients ask for, on
// each node, over HTTP and WebSockets, and what thousands of them cost.
package watches
