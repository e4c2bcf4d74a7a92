// Package isolated runs the tests of a package in a PID, network and mount namespace, with cgroups of their own
// and a network of machines, so that the kernel ends processes, devices and mounts with the run. A keeper outside,
// in a session of its own, removes the cgroups and the directory, also when the test process was killed.
//
// It needs Linux, root, overlayfs and iproute2; Skipped says what is missing.
package isolated
