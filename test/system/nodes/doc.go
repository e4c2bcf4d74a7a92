// Package nodes runs real kubelets under three Quorate nodes: containerd and runc start the containers,
// kube-proxy the Services, kube-controller-manager and kube-scheduler do their work, and the
// Quorate nodes are killed, paused and cut off under them. It is `make nodes`, which builds and
// fetches what is needed; `go test ./...` skips it.
//
// The types to know:
//
//   - Site (site_test.go) is the whole of it: three machines with a control plane each, and two workers.
//   - machine is a network namespace and a mount namespace with an address of its own.
//   - service is a program on a machine that is started again when it ends, as systemd would.
//   - observer watches all the time what must not happen: restarts, nodes that are not ready, leases that are late.
//
// Nothing outlives a run: package isolated has the namespaces that the tests run in.
package nodes
