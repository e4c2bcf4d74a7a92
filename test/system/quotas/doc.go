// Package quotas is about the limits of a namespace while many write at their edge: through
// every node, while the leader is killed and leadership moves, no revision is above a limit,
// and all that is allowed can be used.
package quotas
