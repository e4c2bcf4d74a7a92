// Package hosts runs the units of deploy under systemd: each host is a systemd of its own, as the first process of
// its namespaces, on a copy of this machine's root directory that it cannot change. The hosts are set up by what
// docs/operations.md and docs/control-plane.md say, and then killed, stopped, restarted and switched off.
//
// Nothing outlives a run: package isolated has the namespaces that the tests run in.
package hosts
