package mvcc

import (
	"math"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorate/quorate/proto"
)

// FeatureVersion is the newest feature version that this release supports: it applies
// every entry whose parts have come with it or earlier. It grows when entries get a
// kind, a field, an enum value or a flag that changes what Apply does, or when something
// reads a table that older releases do not read: there, what is written has no effect.
const FeatureVersion uint32 = 2

// features says, for every part that an entry can have, with which feature version it
// came. Entries with parts that are newer than the cluster's version are not proposed:
// a node that does not know them stops.
var features = featureTable{
	Kinds:  map[proto.Kind]uint32{proto.KindWrite: 1, proto.KindCompact: 1, proto.KindNewTerm: 1, proto.KindCluster: 1},
	Flags:  map[uint32]uint32{proto.FlagTerminating: 1, proto.FlagSameRule: 1},
	Tables: map[string]uint32{},
	Parts: map[protoreflect.FullName]uint32{
		"quorate.v1.Write.table": 1, "quorate.v1.Write.key": 1, "quorate.v1.Write.op": 1, "quorate.v1.Write.condition": 1,
		"quorate.v1.Write.expect_revision": 1, "quorate.v1.Write.expect_uid": 1, "quorate.v1.Write.guard": 1,
		"quorate.v1.Write.value": 1, "quorate.v1.Write.revision_offset": 1, "quorate.v1.Write.uid": 1,
		"quorate.v1.Write.labels": 1, "quorate.v1.Write.fields": 1, "quorate.v1.Write.flags": 1,
		"quorate.v1.Write.request_id": 1, "quorate.v1.Write.since": 1, "quorate.v1.Write.term": 1,
		"quorate.v1.Write.second_guard": 1, "quorate.v1.Write.decided_at": 1, "quorate.v1.Write.rules": 1,
		"quorate.v1.Write.rule_ranges": 1, "quorate.v1.Write.usage": 1, "quorate.v1.Write.limits": 1,
		"quorate.v1.Write.enforce_limits": 1, "quorate.v1.Usage.facts": 1, "quorate.v1.Usage.amounts": 1, "quorate.v1.Usage.more_facts": 2,
		"quorate.v1.Amount.name": 1, "quorate.v1.Amount.value": 1, "quorate.v1.Limit.requirements": 1,
		"quorate.v1.Limit.bounds": 1, "quorate.v1.Requirement.name": 1, "quorate.v1.Requirement.operator": 1,
		"quorate.v1.Requirement.values": 1, "quorate.v1.Bound.name": 1, "quorate.v1.Bound.max": 1,
		"quorate.v1.Bound.table": 1, "quorate.v1.OPERATOR_UNSPECIFIED": 1, "quorate.v1.OPERATOR_IN": 1,
		"quorate.v1.OPERATOR_NOT_IN": 1, "quorate.v1.OPERATOR_EXISTS": 1, "quorate.v1.OPERATOR_DOES_NOT_EXIST": 1,
		"quorate.v1.RuleRange.table": 1, "quorate.v1.RuleRange.prefix": 1, "quorate.v1.RuleRange.uid": 1,
		"quorate.v1.Attribute.name": 1, "quorate.v1.Attribute.value": 1, "quorate.v1.Guard.table": 1,
		"quorate.v1.Guard.key": 1, "quorate.v1.Compact.floor": 1, "quorate.v1.NewTerm.term": 1,
		"quorate.v1.NewTerm.leader_id": 1, "quorate.v1.Cluster.cluster_id": 1, "quorate.v1.Cluster.feature_version": 1,
		"quorate.v1.Cluster.term": 1, "quorate.v1.Cluster.storage_bytes": 2, "quorate.v1.OP_UNSPECIFIED": 1, "quorate.v1.OP_PUT": 1, "quorate.v1.OP_DELETE": 1,
		"quorate.v1.CONDITION_NONE": 1, "quorate.v1.CONDITION_ABSENT": 1, "quorate.v1.CONDITION_REVISION": 1,
		"quorate.v1.CONDITION_EXISTS": 1,
	},
}

// featureTable says what came with which feature version.
type featureTable struct {
	Kinds map[proto.Kind]uint32
	Flags map[uint32]uint32 // by bit
	// Tables are the cluster's own that have come later than the first version, by name.
	Tables map[string]uint32
	// Parts are fields and enum values, by their full names.
	Parts map[protoreflect.FullName]uint32
}

// Needs returns the feature version that a cluster must speak before an entry may be in
// its log. It looks at every field, so it is for the time in which a cluster speaks less
// than its nodes support.
func Needs(kind proto.Kind, m proto.Message) uint32 { return features.needs(kind, m) }

// unheard is the version of what is in no table.
const unheard = math.MaxUint32

// needs is Needs with this table.
func (f *featureTable) needs(kind proto.Kind, m proto.Message) uint32 {
	needs, ok := f.Kinds[kind]
	if !ok {
		return unheard
	}
	if w, ok := m.(*proto.Write); ok {
		needs = max(needs, f.Tables[w.Table])
		for bit := uint32(1); bit != 0; bit <<= 1 {
			if w.Flags&bit != 0 {
				needs = max(needs, since(f.Flags, bit))
			}
		}
	}
	return max(needs, f.ofMessage(m.ProtoReflect()))
}

func since[K comparable](table map[K]uint32, key K) uint32 {
	if v, ok := table[key]; ok {
		return v
	}
	return unheard
}

func (f *featureTable) ofMessage(m protoreflect.Message) (needs uint32) {
	if len(m.GetUnknown()) > 0 {
		return unheard
	}
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		needs = max(needs, since(f.Parts, d.FullName()))
		switch {
		case d.Kind() == protoreflect.EnumKind:
			if value := d.Enum().Values().ByNumber(v.Enum()); value != nil {
				needs = max(needs, since(f.Parts, value.FullName()))
			} else {
				needs = unheard
			}
		case d.Kind() == protoreflect.MessageKind && d.IsList():
			for i := range v.List().Len() {
				needs = max(needs, f.ofMessage(v.List().Get(i).Message()))
			}
		case d.Kind() == protoreflect.MessageKind:
			needs = max(needs, f.ofMessage(v.Message()))
		}
		return true
	})
	return needs
}
