package errors

import (
	"fmt"
	"strings"

	"github.com/quorate/quorate/proto"
)

// Refusals of the log, as package storage returns them.

// RulesChangingError is returned when the rules that decide on a write changed again and
// again while it was decided. Nothing was written; it may be tried again later.
type RulesChangingError struct {
	// Times is how often they changed.
	Times int
}

func (e *RulesChangingError) Error() string {
	return fmt.Sprintf("the rules that decide on this write changed %d times while it was decided", e.Times)
}

// LimitExceededError is returned when a write that was to keep limits would exceed one.
// Nothing was written. Other limits may be exceeded too: this is the first.
type LimitExceededError struct {
	// Table and Key are those of the write.
	Table, Key string
	// Exceeded is the limit, with all of its bounds that would be exceeded.
	Exceeded *proto.Exceeded
}

func (e *LimitExceededError) Error() string {
	var bounds []string
	for _, b := range e.Exceeded.GetBounds() {
		bounds = append(bounds, fmt.Sprintf("%s: %d more on top of %d, at most %d", b.Name, b.Requested, b.Used, b.Max))
	}
	return fmt.Sprintf("%s %s would exceed the limit of %s %s: %s",
		e.Table, e.Key, e.Exceeded.GetTable(), e.Exceeded.GetKey(), strings.Join(bounds, ", "))
}

// NoSpaceError is returned for a write that would make the live objects take more than the cluster
// keeps, or than its disks have room for. Nothing was written.
type NoSpaceError struct {
	// Table and Key are those of the write.
	Table, Key string
	// Disks names the nodes whose disks have no room, if it is that.
	Disks string
	// Adds is what the write would add, Used what is stored, Limit what may be. In bytes.
	Adds, Used, Limit int64
}

func (e *NoSpaceError) Error() string {
	if e.Disks != "" {
		return fmt.Sprintf("the disk is full on %s: what makes objects take more is refused until there is room again, and this would add %s. "+
			"Make room on the disk, or delete what is not needed (the metric quorate_namespace_stored_bytes says which namespaces have most)",
			e.Disks, binaryBytes(e.Adds))
	}
	return fmt.Sprintf("the storage of the cluster has no room for this: %s of %s are used, and it would add %s. "+
		"Delete what is not needed (the metric quorate_namespace_stored_bytes says which namespaces have most), or raise --storage-bytes on every voter",
		binaryBytes(e.Used), binaryBytes(e.Limit), binaryBytes(e.Adds))
}

// binaryBytes is a size for people.
func binaryBytes(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	default:
		return fmt.Sprintf("%d MiB", n>>20)
	}
}
