// Package backup is backups as files on an operator's machine: what one says of itself, and how a stream
// from a node becomes a file that nobody takes for a backup before it is one.
package backup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
)

// Path is where a node serves a backup of itself, to those whose roles let them. With ConfirmedQuery
// a node that no majority confirms answers 503 instead.
const (
	Path           = "/quorate/v1/snapshot"
	ConfirmedQuery = "?confirmed=true"
)

// Info is what a backup says of itself. Fields are added, never changed.
type Info struct {
	File      string `json:"file,omitempty"` // none: standard output
	ClusterID string `json:"clusterID"`
	Revision  uint64 `json:"revision"`
	Floor     uint64 `json:"floor"` // watches and exact reads reach back to it
	Hash      string `json:"hash"`  // of the state: two backups at one revision have the same
	Versions  uint64 `json:"versions"`
	Bytes     int64  `json:"bytes"`
	Taken     Taken  `json:"taken"`
}

// Taken says how a backup was taken.
type Taken struct {
	Time          time.Time `json:"time"`
	Node          string    `json:"node"`
	NodeID        string    `json:"nodeID"`
	Version       string    `json:"version"`
	Role          string    `json:"role"`
	LastContactMS int64     `json:"lastContactMs"` // since the node heard from a leader; -1: never
	Confirmed     bool      `json:"confirmed"`     // by a majority: it holds all that had been acknowledged
	NotConfirmed  string    `json:"notConfirmed,omitempty"`
}

// Read reads a backup to its end.
func Read(file string) (Info, error) {
	f, err := os.Open(file)
	if err != nil {
		return Info{}, err
	}
	defer f.Close()
	b, err := Parse(f)
	if err != nil {
		return Info{}, fmt.Errorf("%s: %w", file, err)
	}
	b.File = file
	return b, nil
}

// Parse is Read for a stream.
func Parse(r io.Reader) (Info, error) {
	rec, stats, err := disk.Inspect(r)
	if err != nil {
		return Info{}, err
	}
	if stats.About == nil {
		return Info{}, errors.New("it is the stream of a snapshot and not a backup: it does not say when and by which node it was taken")
	}
	return Info{
		ClusterID: rec.ClusterId, Revision: rec.Applied, Floor: rec.Floor, Hash: fmt.Sprintf("%016x", rec.Hash),
		Versions: stats.Versions, Bytes: stats.Bytes, Taken: takenOf(stats.About),
	}, nil
}

// takenOf is what a backup says of how it was taken.
func takenOf(p *proto.Backup) Taken {
	return Taken{
		Time: time.UnixMilli(p.TakenUnixMs).UTC(), Node: p.NodeName, NodeID: p.NodeId, Version: p.Version,
		Role: p.Role, LastContactMS: p.LastContactMs, Confirmed: p.Confirmed, NotConfirmed: p.NotConfirmed,
	}
}
