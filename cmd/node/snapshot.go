package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/spf13/cobra"
)

func snapshotCommand() *cobra.Command {
	c := group(&cobra.Command{Use: "snapshot", Short: "Save, inspect, verify and restore backups"})
	var output string
	inspect := &cobra.Command{
		Use: "inspect FILE", Short: "Say what a backup holds, from when and from which node", Args: exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			b, err := readBackup(args[0])
			if err != nil {
				return err
			}
			return b.print(cmd.OutOrStdout(), output)
		},
	}
	inspect.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	completeOutput(inspect, "table", "json")
	c.AddCommand(snapshotSaveCommand(), inspect, &cobra.Command{
		Use: "verify FILE", Short: "Read a backup to its end and check every checksum", Args: exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := readBackup(args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is whole\n", args[0])
			return err
		},
	}, snapshotRestoreCommand())
	return c
}

// backupInfo is what a backup says of itself. Fields are added, never changed.
type backupInfo struct {
	File      string       `json:"file,omitempty"` // none: standard output
	ClusterID string       `json:"clusterID"`
	Revision  uint64       `json:"revision"`
	Floor     uint64       `json:"floor"` // watches and exact reads reach back to it
	Hash      string       `json:"hash"`  // of the state: two backups at one revision have the same
	Versions  uint64       `json:"versions"`
	Bytes     int64        `json:"bytes"`
	Taken     *backupTaken `json:"taken,omitempty"` // none: by a release that did not say
}

// backupTaken says how a backup was taken.
type backupTaken struct {
	Time          time.Time `json:"time"`
	Node          string    `json:"node"`
	NodeID        string    `json:"nodeID"`
	Version       string    `json:"version"`
	Role          string    `json:"role"`
	LastContactMS int64     `json:"lastContactMs"` // since the node heard from a leader; -1: never
	Confirmed     bool      `json:"confirmed"`     // by a majority: it holds all that had been acknowledged
	NotConfirmed  string    `json:"notConfirmed,omitempty"`
}

// readBackup reads a backup to its end.
func readBackup(file string) (backupInfo, error) {
	f, err := os.Open(file)
	if err != nil {
		return backupInfo{}, err
	}
	defer f.Close()
	b, err := parseBackup(f)
	if err != nil {
		return backupInfo{}, fmt.Errorf("%s: %w", file, err)
	}
	b.File = file
	return b, nil
}

func parseBackup(r io.Reader) (backupInfo, error) {
	rec, stats, err := disk.Inspect(r)
	if err != nil {
		return backupInfo{}, err
	}
	return backupInfo{
		ClusterID: rec.ClusterId, Revision: rec.Applied, Floor: rec.Floor, Hash: fmt.Sprintf("%016x", rec.Hash),
		Versions: stats.Versions, Bytes: stats.Bytes, Taken: takenOf(stats.About),
	}, nil
}

func takenOf(p *proto.Backup) *backupTaken {
	if p == nil {
		return nil
	}
	return &backupTaken{
		Time: time.UnixMilli(p.TakenUnixMs).UTC(), Node: p.NodeName, NodeID: p.NodeId, Version: p.Version,
		Role: p.Role, LastContactMS: p.LastContactMs, Confirmed: p.Confirmed, NotConfirmed: p.NotConfirmed,
	}
}

func (b backupInfo) print(w io.Writer, output string) error {
	if output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(b)
	}
	taken, by := "by an older release, which does not say", ""
	if t := b.Taken; t != nil {
		taken = fmt.Sprintf("%s from %s, %s", t.Time.Format("2006-01-02 15:04:05 UTC"), t.Node, t.standing())
		by = fmt.Sprintf("version:   %s\n", t.Version)
	}
	_, err := fmt.Fprintf(w, "cluster:   %s\nrevision:  %d\ntaken:     %s\n%sfloor:     %d\nhash:      %s\nversions:  %d\nsize:      %s\n",
		b.ClusterID, b.Revision, taken, by, b.Floor, b.Hash, b.Versions, size(uint64(b.Bytes)))
	return err
}

// standing says where the node stood in its cluster.
func (t *backupTaken) standing() string {
	if t.Confirmed {
		return t.Role + "; a majority confirmed that nothing was missing"
	}
	return t.Role + "; NOT confirmed by a majority"
}

// warning is what has to be said of a backup that may be old, or "".
func (t *backupTaken) warning() string {
	if t == nil || t.Confirmed {
		return ""
	}
	heard := "and has never heard from a leader since its start"
	switch {
	case t.Role == "leader":
		heard = "though it calls itself the leader"
	case t.LastContactMS >= 0:
		heard = "and last heard from a leader " + (time.Duration(t.LastContactMS) * time.Millisecond).Round(time.Millisecond).String() + " before"
	}
	return fmt.Sprintf("warning: %s (%s) reached no majority (%s), %s.\n"+
		"The backup holds what this node has: newer writes may be missing. 'quorate status' shows the nodes.", t.Node, t.Role, t.NotConfirmed, heard)
}
