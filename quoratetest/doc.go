// Package quoratetest gives a Go test a real Kubernetes API server in its own process, with
// watches, server-side apply, custom resources, RBAC and garbage collection. There is nothing to
// install, to download, or to start before.
//
//	func TestController(t *testing.T) {
//		s := quoratetest.Start(t)
//		client := kubernetes.NewForConfigOrDie(s.Config())
//		...
//	}
//
// The first write is answered 0.25 s after Start, and that of a cluster of three ([Nodes]) after
// 0.46 s: medians of BenchmarkStart on two processors that had four times as much to do. With
// six times as much it was 0.38 and 0.56 s. Each server is apart from all others, so tests may be
// parallel. It ends with the test and leaves nothing: no process, port, goroutine or file.
//
// Functions to know: [Start], for one test; [Open] and [Server.Stop], for TestMain;
// [Server.Config], with which clients reach the server.
//
// With controller-runtime's envtest, whose environment then starts nothing, but installs
// definitions:
//
//	env := &envtest.Environment{
//		UseExistingCluster: ptr.To(true), Config: s.Config(),
//		CRDDirectoryPaths: []string{"config/crd"},
//	}
//
// What to know:
//
//   - A module that requires this one first gets the Kubernetes libraries in its versions; `go mod
//     tidy` in an empty one takes newer ones, of another minor, which does not compile.
//   - As everywhere, a custom resource is served when its definition is Established, some
//     milliseconds after it was created.
//   - Admission is kube-apiserver's, with webhooks at URLs, such as those that envtest installs,
//     and policies. A Pod needs its service account: a controller makes `default` a moment after
//     the namespace, and until then a Pod is refused. (envtest's own server does not ask for it.)
//     What Quorate does not do is in docs/differences.md.
//   - No kubelet and no scheduler run: Pods stay pending. The controllers are the API server's own
//     (namespaces, garbage collection, service accounts), none of kube-controller-manager's.
//   - Everything is written to disk and synced, below the directory for temporary files.
//   - The timers of elections are short, for a fast start. On a machine that stalls, three nodes
//     have more elections than elsewhere; requests wait for them.
//   - A disk that fails or is full ends the test's process with a panic: see node.Config.Fatal.
package quoratetest
