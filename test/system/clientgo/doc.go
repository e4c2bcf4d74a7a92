// Package clientgo drives a cluster with client-go as it is: informers in each form
// that they list and watch, and protobuf. The module test/modules/clients takes it, and other
// libraries, through restarts.
package clientgo
