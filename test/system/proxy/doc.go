// Package proxy runs `quorate proxy` in front of a cluster, as a worker has it.
package proxy
