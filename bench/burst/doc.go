// Package burst measures what a burst of patches does to a cluster: whether every patch is answered, what other clients
// see meanwhile, and whether Raft keeps running.
//
// The types to know:
//
//   - Options say how many clients patch how many Deployments, as which user.
//   - A Burst is one that is under way. Run starts one, waits, and ends it.
//   - Report is the JSON; its Doc shows the same. Failed tells whether anything was lost.
//
// Each client patches one Deployment again and again. If there are more clients than Deployments, several share one, and
// their patches conflict. Each patch sets an annotation to a value of its own. A patch that was acknowledged at a revision must
// be in the events of every watch, and in the Deployment in the end unless a later one is.
package burst
