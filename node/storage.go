package node

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/observe/metrics"
	"github.com/quorate/quorate/internal/collector"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/proto"
)

const (
	// storageShare is which part of a node's memory the objects may take if nobody says how much. At rest each takes one
	// and a half times what it counts for, while they are made two and a half times; history and requests need
	// memory, too.
	storageShare = 4
	// leastReserve is what a reserve has at least: two of the log's files are half of it.
	leastReserve = 64 << 20
	mostReserve  = 4 << 30
	// leastStorage is what a cluster can be told to store at least.
	leastStorage = 1 << 20
	// mostStorage is what it can be told to store at most.
	mostStorage = 1 << 60
	// unknownStorage is for a machine that does not say how much memory it has: as much as etcd stores.
	unknownStorage = 2 << 30
)

// storageBytes is what this node would have all objects take at most.
func (c *Config) storageBytes() int64 {
	switch memory := collector.Memory(); {
	case c.StorageBytes > 0:
		return c.StorageBytes
	case memory <= 0:
		return unknownStorage
	default:
		return max(leastStorage, memory/storageShare)
	}
}

// storageNotice tells operators that the storage is full, or nearly.
func storageNotice(used, limit int64) []string {
	switch {
	case limit == 0 || used < limit/10*8:
		return nil
	case used < limit:
		return []string{fmt.Sprintf("storage: %d of %d MiB are used; above that, what makes objects take more is refused", used>>20, limit>>20)}
	}
	return []string{fmt.Sprintf("storage: full, %d of %d MiB are used. Deletes, and writes that make nothing larger, go on; delete objects, or raise --storage-bytes on every voter", used>>20, limit>>20)}
}

// diskNotice tells operators which disks have no room: as the members say, and as the leader has heard from those that do not answer.
func diskNotice(disks *proto.DiskSpace, members []membership.MemberStatus) (out []string) {
	names := map[membership.DiskSpace][]string{}
	for _, m := range members {
		lacks := m.DiskSpace
		switch {
		case m.Error != "" && slices.Contains(disks.GetNodes(), m.Name):
			lacks = membership.DiskFull
		case lacks == membership.DiskLow:
			lacks = membership.DiskFull // which of them it is, is for programs
		}
		names[lacks] = append(names[lacks], m.Name)
	}
	say := func(lacks membership.DiskSpace, before, after string) {
		if who := names[lacks]; len(who) > 0 {
			out = append(out, "disk: "+before+strings.Join(who, ", ")+after)
		}
	}
	refused := ""
	if disks.GetLevel() == proto.DiskSpace_ENOUGH {
		say(membership.DiskFull, "full on ", "; the cluster goes on with the others. Make room there")
	} else {
		say(membership.DiskFull, "full on ", "; what makes objects take more is refused. Make room there, or delete objects")
		refused = ", and writes are refused"
	}
	say(membership.DiskNoRoom, "no room for a snapshot of the leader on ", ", which needs one to follow. Make room there: the log of the node says how much it takes")
	say(membership.DiskReadOnly, "read-only on ", ": nothing can be written there"+refused+". Mend the file system, and start the node again")
	say(membership.DiskOnReserve, "no room beside what the node has reserved for itself on ", ". Make room there, before that is used up")
	return out
}

// mostNamespaces have a series of their bytes: those with most. Tenants may make as many as they like.
const mostNamespaces = 100

// largest are the namespaces with most bytes. What is in no namespace is not one of them.
func largest(all map[string]int64, most int) (out []metrics.NamespaceStats) {
	for name, bytes := range all {
		if name != "" {
			out = append(out, metrics.NamespaceStats{Name: name, Bytes: bytes})
		}
	}
	slices.SortFunc(out, func(a, b metrics.NamespaceStats) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Name, b.Name))
	})
	return out[:min(len(out), most)]
}
