// Package disk is everything durable of a node.
package disk
