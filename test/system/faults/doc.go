// Package faults kills, stops and cuts off the nodes of a cluster under load, and
// measures for how long it does not serve. Nothing acknowledged is lost, no event is seen
// twice, late or not at all, and a node without a quorum says so in time.
package faults
