package raftstore

import storeerrors "github.com/quorate/quorate/raftstore/errors"

// The errors of Store, as package raftstore/errors explains them.
var (
	ErrNoLeader             = storeerrors.ErrNoLeader
	ErrUnknownOutcome       = storeerrors.ErrUnknownOutcome
	ErrOverloaded           = storeerrors.ErrOverloaded
	ErrTooLarge             = storeerrors.ErrTooLarge
	ErrFeature              = storeerrors.ErrFeature
	ErrTooOld               = storeerrors.ErrTooOld
	ErrClosed               = storeerrors.ErrClosed
	ErrNotLeader            = storeerrors.ErrNotLeader
	ErrConfigurationChanged = storeerrors.ErrConfigurationChanged
)
