package raftstore

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/raftstore/replication"
)

// newRaftLogger gives the Raft library's lines to slog: those that an operator meets when nodes start, stop
// or are lost in our words, with names of nodes, and at a level that says what they mean for the cluster:
// ERROR is for what this node cannot do, not for another node that is away.
func newRaftLogger(l *slog.Logger, nameOf func(idOrAddress string) string) hclog.Logger {
	sink := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Info, Output: io.Discard})
	sink.RegisterSink(&slogSink{l: l, nameOf: nameOf, said: map[string]*said{}})
	return sink
}

// What the library says of a node at every try is said once, and again when tries have not failed for a
// while, or have failed for long.
const (
	calmAfter     = 30 * time.Second // Raft tries at least every 10 s
	repeatedAfter = time.Minute
)

// raftLine is what becomes of a line of the library.
type raftLine struct {
	level slog.Level
	text  string // "": the library's
	often bool   // it comes at every try: once in a while is enough, by the node that it is about
}

const (
	unanswered  = "a node does not answer this one, which leads, retrying"
	unsent      = "a node does not take a snapshot of this one, which leads, retrying"
	unasked     = "a node cannot be asked for its vote"
	voteRefused = "the vote was refused to a node: "
)

// raftLines are the lines of the library that have other words or another level here.
var raftLines = map[string]raftLine{
	"failed to heartbeat to":                           {slog.LevelWarn, unanswered, true},
	"failed to contact":                                {slog.LevelWarn, unanswered, true},
	"failed to contact quorum of nodes, stepping down": {slog.LevelWarn, "a majority of the voters does not answer: this node stops leading", false},
	"failed to appendEntries to":                       {slog.LevelWarn, unanswered, true},
	"failed to pipeline appendEntries":                 {slog.LevelWarn, unanswered, true},
	"failed to start pipeline replication to":          {slog.LevelWarn, unanswered, true},
	"failed to send snapshot to":                       {slog.LevelWarn, unsent, true},
	"failed to install snapshot":                       {slog.LevelWarn, unsent, true},
	"failed to append to logs":                         {slog.LevelError, "entries of the leader cannot be written to the log", true},
	"failed to take snapshot":                          {slog.LevelWarn, "the log is not cut, no snapshot can be taken, retrying", true},
	"failed to copy snapshot":                          {slog.LevelError, "a snapshot of the leader cannot be received", true},
	"failed to finalize snapshot":                      {slog.LevelError, "a snapshot of the leader cannot be received", true},
	"failed to make requestVote RPC":                   {slog.LevelWarn, unasked, true},
	"peer has newer term, stopping replication":        {slog.LevelInfo, "a node knows a newer term: this node stops leading", false},
	"new leader elected, stepping down":                {slog.LevelInfo, "another node leads: this node stops leading", false},

	"entering follower state":                       {slog.LevelInfo, "this node is a follower", false},
	"entering candidate state":                      {slog.LevelInfo, "this node is a candidate", false},
	"entering leader state":                         {slog.LevelDebug, "", false}, // we say it when its first entry is committed
	"heartbeat timeout reached, starting election":  {slog.LevelInfo, "no leader sends heartbeats: campaigning", false},
	"Election timeout reached, restarting election": {slog.LevelInfo, "the election has no winner, campaigning again", true},
	"heartbeat timeout reached, not part of a stable configuration or a non-voter, not triggering a leader election": {slog.LevelInfo, "no leader sends heartbeats, and this node has no vote", true},
	"no known peers, aborting election":                             {slog.LevelDebug, "", false},
	"not part of stable configuration, aborting election":           {slog.LevelInfo, "no leader sends heartbeats, and this node is no voter of a committed configuration", true},
	"pre-vote successful, starting election":                        {slog.LevelDebug, "", false},
	"pre-vote campaign failed, waiting for election timeout":        {slog.LevelDebug, "", false},
	"duplicate requestVote for same term":                           {slog.LevelDebug, "", false},
	"duplicate requestVote from":                                    {slog.LevelDebug, "", false},
	"rejecting vote request since we have a leader":                 {slog.LevelInfo, voteRefused + "there is a leader", true},
	"rejecting pre-vote request since we have a leader":             {slog.LevelInfo, voteRefused + "there is a leader", true},
	"rejecting vote request since our last term is greater":         {slog.LevelInfo, voteRefused + "its log is older", true},
	"rejecting pre-vote request since our last term is greater":     {slog.LevelInfo, voteRefused + "its log is older", true},
	"rejecting vote request since our last index is greater":        {slog.LevelInfo, voteRefused + "its log is shorter", true},
	"rejecting pre-vote request since our last index is greater":    {slog.LevelInfo, voteRefused + "its log is shorter", true},
	"rejecting vote request since node is not a voter":              {slog.LevelInfo, voteRefused + "it is no voter", true},
	"rejecting pre-vote request since node is not a voter":          {slog.LevelInfo, voteRefused + "it is no voter", true},
	"rejecting vote request since node is not in configuration":     {slog.LevelInfo, voteRefused + "it is no member", true},
	"rejecting pre-vote request since node is not in configuration": {slog.LevelInfo, voteRefused + "it is no member", true},

	"failed to get previous log":                 {slog.LevelInfo, "entries are missing before those that the leader sent: it sends older ones", false},
	"previous log term mis-match":                {slog.LevelInfo, "the log differs from the leader's: it sends older entries", false},
	"appendEntries rejected, sending older logs": {slog.LevelInfo, "a node lacks older entries: they are sent", false},
	"clearing log suffix":                        {slog.LevelInfo, "entries are dropped that the leader does not have", false},
	"initial configuration":                      {slog.LevelDebug, "", false},
	"updating configuration":                     {slog.LevelInfo, "the members change", false},
	"added peer, starting replication":           {slog.LevelDebug, "", false},
	"updating peer":                              {slog.LevelDebug, "", false},
	"removed peer, stopping replication":         {slog.LevelDebug, "", false},
	"pipelining replication":                     {slog.LevelDebug, "", false},
	"aborting pipeline replication":              {slog.LevelDebug, "", false},
	"skipping application of old log":            {slog.LevelDebug, "", false},
	"starting snapshot up to":                    {slog.LevelDebug, "", false},
	"snapshot complete up to":                    {slog.LevelDebug, "", false},
	"no logs to truncate":                        {slog.LevelDebug, "", false},
	"compacting logs":                            {slog.LevelInfo, "", true},
	"copied to local snapshot":                   {slog.LevelDebug, "", false},
	"opening snapshot":                           {slog.LevelDebug, "", false},
	"installing snapshot on":                     {slog.LevelInfo, "a snapshot is sent to a node", true},
	"installSnapshot rejected to":                {slog.LevelWarn, "a node has refused a snapshot", false},
	"Installed remote snapshot":                  {slog.LevelInfo, "a snapshot of the leader was installed", false},
}

// raftKeys are our keys for the library's. What has "" is left out: it says again what another key says, or
// prints Go's fields.
var raftKeys = map[string]string{
	"error": "err", "backoff time": "retry", "peer": "node", "server-id": "node", "target": "node", "from": "node", "candidate": "node",
	"leader-id": "leader", "last-leader-id": "leader", "leader-address": "", "last-leader-addr": "", "server-addr": "", "servers": "", "follower": "",
}

type slogSink struct {
	l      *slog.Logger
	nameOf func(idOrAddress string) string

	mu   sync.Mutex
	said map[string]*said // by line and node
}

// said is when a line was last written, and when it last came.
type said struct{ at, came time.Time }

// again reports whether a line that comes at every try is to be written now.
func (s *slogSink) again(about string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.said[about]
	if last == nil {
		last = &said{}
		s.said[about] = last
	}
	again := now.Sub(last.came) > calmAfter || now.Sub(last.at) > repeatedAfter
	if last.came = now; again {
		last.at = now
	}
	return again
}

// Accept implements hclog.SinkAdapter.
func (s *slogSink) Accept(name string, level hclog.Level, msg string, args ...any) {
	line, ours := raftLines[msg]
	if !ours {
		line.level = slogLevel(level)
	}
	if !s.l.Enabled(context.Background(), line.level) {
		return
	}
	if line.text == "" {
		line.text = msg
	}
	if slices.Contains(args, any(replication.ErrFollowerFull)) {
		line.text = "a node takes no entries of this one, which leads, retrying"
	}
	out := append(make([]any, 0, len(args)+2), "component", name)
	about := line.text
	for i := 0; i+1 < len(args); i += 2 {
		key, _ := args[i].(string)
		value, isNode := s.readable(args[i+1])
		if k, ok := raftKeys[key]; ok && (k != "node" || isNode) { // "from" is an index, too
			key = k
		}
		if _, own := args[i+1].(*raft.Raft); own || key == "" || slices.Contains(out, any(key)) {
			continue
		}
		if isNode {
			about += fmt.Sprint(" ", value)
		}
		out = append(out, key, value)
	}
	if line.often && !s.again(about, time.Now()) {
		return
	}
	s.l.Log(context.Background(), line.level, line.text, out...)
}

func slogLevel(level hclog.Level) slog.Level {
	switch level {
	case hclog.Info:
		return slog.LevelInfo
	case hclog.Warn:
		return slog.LevelWarn
	case hclog.Error:
		return slog.LevelError
	}
	return slog.LevelDebug
}

// readable is a value for people, and whether it is a node: that is its name, as far as it is known.
func (s *slogSink) readable(v any) (_ any, isNode bool) {
	switch v := v.(type) {
	case raft.Server:
		return s.nameOf(string(v.ID)), true
	case raft.ServerID:
		return s.nameOf(string(v)), true
	case raft.ServerAddress:
		return s.nameOf(string(v)), true
	case hclog.Format: // a format and its arguments, to be printed only if needed
		return formatted(v), false
	case fmt.Stringer:
		return v.String(), false
	}
	return v, false
}

func formatted(f hclog.Format) string {
	if len(f) == 0 {
		return ""
	}
	format, ok := f[0].(string)
	if !ok {
		return fmt.Sprint(f...)
	}
	return fmt.Sprintf(format, f[1:]...)
}
