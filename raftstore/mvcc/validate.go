package mvcc

import (
	"errors"
	"fmt"

	"github.com/quorate/quorate/proto"
)

// ErrInvalid is returned by Validate.
var ErrInvalid = errors.New("not a valid write")

// Validate refuses writes that must never reach a log, where they would stop
// every node. Whoever proposes calls it; Apply cannot refuse what is committed.
func Validate(w *proto.Write) error {
	switch {
	case !known(w):
		return fmt.Errorf("op %d, condition %d: %w", w.Op, w.Condition, ErrInvalid)
	case w.Table == "" || w.Key == "":
		return fmt.Errorf("table %q, key %q: %w", w.Table, w.Key, ErrInvalid)
	case int64(w.RevisionOffset) > int64(len(w.Value)):
		return fmt.Errorf("revision offset %d in %d bytes: %w", w.RevisionOffset, len(w.Value), ErrInvalid)
	case len(w.RequestId) != 0 && len(w.RequestId) != proto.RequestIDSize:
		return fmt.Errorf("request id of %d bytes: %w", len(w.RequestId), ErrInvalid)
	}
	return nil
}

// known reports whether this version understands the write. What it does not
// understand was written for a newer one.
func known(w *proto.Write) bool {
	return (w.Op == proto.Op_OP_PUT || w.Op == proto.Op_OP_DELETE) &&
		w.Condition >= proto.Condition_CONDITION_NONE && w.Condition <= proto.Condition_CONDITION_EXISTS
}
