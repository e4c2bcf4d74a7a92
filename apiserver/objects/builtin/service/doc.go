// Package service knows what is special about Services: fields that follow from
// each other, and addresses and ports that no two Services may share. It is pure:
// where addresses and ports come from is the Pool's business.
//
// The way of a write: Normalize makes the fields that depend on each other agree,
// Validate checks them, and Allocate fills in the addresses and ports that are
// missing. Held says what an object holds, for the code that releases it.
//
// The types to know:
//
//   - Pool hands out what is unique in the cluster.
//   - Ranges are the blocks of addresses and of ports.
package service
