package mvcc

import (
	"errors"
	"fmt"

	"github.com/quorate/quorate/proto"
)

// ErrInvalid is returned by Validate.
var ErrInvalid = errors.New("not a valid write")

// Validate refuses writes that must never reach a log, where they would stop
// every node. Proposers call it; Apply cannot refuse what is committed.
func Validate(w *proto.Write) error {
	switch {
	case !known(w):
		return fmt.Errorf("op %d, condition %d, flags %x, rules %x, or a field that this release does not know: %w",
			w.Op, w.Condition, w.Flags, w.Rules, ErrInvalid)
	case w.Table == "" || w.Key == "":
		return fmt.Errorf("table %q, key %q: %w", w.Table, w.Key, ErrInvalid)
	case int64(w.RevisionOffset) > int64(len(w.Value)):
		return fmt.Errorf("revision offset %d in %d bytes: %w", w.RevisionOffset, len(w.Value), ErrInvalid)
	case len(w.RequestId) != 0 && len(w.RequestId) != proto.RequestIDSize:
		return fmt.Errorf("request id of %d bytes: %w", len(w.RequestId), ErrInvalid)
	case w.DecidedAt == 0 && (w.Rules != 0 || len(w.RuleRanges) > 0):
		return fmt.Errorf("rules without the revision that it was decided at would not be checked: %w", ErrInvalid)
	case len(w.RuleRanges) > maxRuleRanges:
		return fmt.Errorf("%d ranges of rules, at most %d can be checked: %w", len(w.RuleRanges), maxRuleRanges, ErrInvalid)
	}
	return validateCharge(w)
}

// known reports whether this version understands the write. What it does not
// understand was written for a newer one: a field that is ignored may be one that
// changes what the write does, and then the state would be another than the others'.
func known(w *proto.Write) bool {
	if unknownFields(w) || unknownAttributes(w.Labels) || unknownAttributes(w.Fields) ||
		w.Guard != nil && unknownFields(w.Guard) || w.SecondGuard != nil && unknownFields(w.SecondGuard) || !knownCharge(w.Usage, w.Limits) {
		return false
	}
	for _, r := range w.RuleRanges {
		if r == nil || unknownFields(r) {
			return false
		}
	}
	return w.Flags&^knownFlags == 0 && w.Rules&^proto.AllRules == 0 && (w.Op == proto.Op_OP_PUT || w.Op == proto.Op_OP_DELETE) &&
		w.Condition >= proto.Condition_CONDITION_NONE && w.Condition <= proto.Condition_CONDITION_EXISTS
}

// knownFlags are the flags that Apply knows.
const knownFlags = proto.FlagTerminating | proto.FlagSameRule

// unknownFields reports whether a message has fields that this version does not know;
// those of messages inside it are not looked at.
func unknownFields(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) > 0 }

func unknownAttributes(list []*proto.Attribute) bool {
	for _, a := range list {
		if a != nil && unknownFields(a) {
			return true
		}
	}
	return false
}

// Decode parses the body of an entry or a record that must hold nothing unknown.
// Errors: proto.ErrFormat, proto.ErrUnknownKind.
func Decode(body []byte, m proto.Message) error {
	if err := proto.Decode(body, m); err != nil {
		return err
	}
	if unknownFields(m) {
		return fmt.Errorf("%s has a field that this release does not know: %w", m.ProtoReflect().Descriptor().Name(), proto.ErrUnknownKind)
	}
	return nil
}
