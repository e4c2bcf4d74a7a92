// Package node is one node of a cluster: a Kubernetes API server and the Raft log that is its
// storage, in this process. The command quorate is this package behind flags; tests and tools embed
// it the same way.
//
//	// serve runs a cluster of one node until ctx ends.
//	func serve(ctx context.Context, dir string) error {
//		c := node.Defaults()
//		c.DataDir, c.BootstrapExpect = dir, 1
//		c.APIListen, c.PeerListen = "127.0.0.1:6443", "127.0.0.1:7443"
//		n, err := node.Open(ctx, c)
//		if err != nil {
//			return err
//		}
//		return errors.Join(n.Run(ctx), n.Close())
//	}
//
// The package's example has open listeners instead of addresses, waits until the node is ready, and
// is its client.
//
// Types to know:
//
//   - [Config] is what a node is told; [Defaults] are its settings, which are those of the command line.
//   - [Node] is a node: [Open] takes its directory and ports, [Node.Run] serves until it is to end,
//     [Node.Close] gives everything back. [Node.Kubeconfig] is how clients reach it.
//
// For Go tests there is package quoratetest, which starts one node or three.
//
// Any number of nodes may run in one process, of one cluster or of several. A node has no global
// state: goroutines, files, ports and connections end with Close. It does not change signals, the
// environment, the umask, the standard loggers, or limits of the process. What there is of it
// once in a process is asked for by Config.WholeProcess: systemd, and what the Raft library reports
// of itself.
//
// Caveats:
//
//   - A node that can trust its disk no more must not go on: Config.Fatal ends the process, by
//     default with a panic.
//   - The data directory holds the cluster's secret and every Secret in clear. It is made with mode
//     0700; one that exists keeps its mode.
//   - /debug/pprof and the Go metrics are of the process, with everything else that runs there.
//   - Above some 8,000 goroutines of whatever sort in the process, each node has them profiled every
//     15 s: they may be answers that clients do not take.
//   - Config.MaxConnections is bounded by the descriptors of the process: nodes that share it share them.
//
// Inside: open.go and api.go put the parts together, each of which declares the interface that it needs
// (adapters.go); stop.go the order of the end.
package node
