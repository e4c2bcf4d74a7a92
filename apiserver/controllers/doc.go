// Package controllers holds the loops that the leader's node runs because a
// cluster without a controller manager would be stuck without them. Each loop
// declares what it needs of the API, is idempotent, and does no harm if two
// nodes run it for a moment.
package controllers
