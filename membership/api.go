package membership

import (
	"time"

	"github.com/quorate/quorate/proto"
)

// The JSON of the admin API, /quorate/v1/. Fields are added, never changed.

// Paths of the HTTP handlers.
const (
	AdminPath = "/quorate/v1/"
	JoinPath  = "/quorate/join"
)

// MemberInfo is a member as the cluster sees it.
type MemberInfo struct {
	ID          proto.NodeID `json:"id"`
	Name        string       `json:"name"`
	PeerAddress string       `json:"peerAddress"`
	APIAddress  string       `json:"apiAddress,omitempty"`
	Voter       bool         `json:"voter"`
	Leader      bool         `json:"leader"`
	// LostEntries says, for a person, that the member came back without entries that it had acknowledged.
	// It takes no part any more, and is to be removed and replaced.
	LostEntries string `json:"lostEntries,omitempty"`
}

// MemberList is the answer to GET members and to every change.
type MemberList struct {
	ClusterID proto.ClusterID `json:"clusterID"`
	Members   []MemberInfo    `json:"members"`
}

// AddRequest is the body of POST members: the peer address of a running node,
// whose id is asked for there.
type AddRequest struct {
	PeerAddress string `json:"peerAddress"`
}

// TransferRequest is the body of POST transfer-leader. Empty: the best voter.
type TransferRequest struct {
	To string `json:"to,omitempty"` // id or name
}

// TokenState says whether a join token still works.
type TokenState string

// States of a join token.
const (
	TokenValid   TokenState = "valid"
	TokenExpired TokenState = "expired"
	TokenUsedUp  TokenState = "used-up"
)

// TokenInfo is a join token without its secret.
type TokenInfo struct {
	ID      string     `json:"id"`
	Created time.Time  `json:"created"`
	Expires time.Time  `json:"expires"`
	Uses    int        `json:"uses"` // allowed; 0: any number
	Used    int        `json:"used"`
	Note    string     `json:"note,omitempty"`
	State   TokenState `json:"state"`
	// Worker: it is a bootstrap token, by which a machine joins as a node of Kubernetes. Servers never say it.
	Worker bool `json:"worker,omitempty"`
}

// TokenRequest is the body of POST tokens.
type TokenRequest struct {
	TTLSeconds int64  `json:"ttlSeconds,omitempty"` // 0: DefaultTokenTTL
	Uses       int    `json:"uses,omitempty"`
	Note       string `json:"note,omitempty"`
}

// TokenCreated is the answer to POST tokens, the only place where the secret is.
type TokenCreated struct {
	Token string    `json:"token"`
	Info  TokenInfo `json:"info"`
}

// TokenList is the answer to GET tokens.
type TokenList struct {
	Tokens []TokenInfo `json:"tokens"`
}

// MemberStatus is one row of the cluster's status. With an Error, only what the
// answering node knows about the member is filled in.
type MemberStatus struct {
	MemberInfo
	Role          string `json:"role,omitempty"`
	Term          uint64 `json:"term,omitempty"`
	Commit        uint64 `json:"commit,omitempty"`
	Applied       uint64 `json:"applied,omitempty"`
	LastLogIndex  uint64 `json:"lastLogIndex,omitempty"`
	Lag           uint64 `json:"lag"`           // applied entries behind the newest commit that was reported
	LastContactMS int64  `json:"lastContactMs"` // since it heard the leader; -1: never
	Floor         uint64 `json:"floor,omitempty"`
	DBBytes       uint64 `json:"dbBytes,omitempty"`
	Version       string `json:"version,omitempty"`
	// FeatureVersion is the newest that the node supports.
	FeatureVersion uint32 `json:"featureVersion,omitempty"`
	StartedUnix    int64  `json:"startedUnix,omitempty"`
	LeaderID       string `json:"leaderID,omitempty"` // that it follows
	// StateHash covers everything up to StateHashAt: nodes at the same index have
	// the same hash, or one of them is broken.
	StateHash   string `json:"stateHash,omitempty"`
	StateHashAt uint64 `json:"stateHashAt,omitempty"`
	// DiskSpace is what its disk lacks, or empty.
	DiskSpace DiskSpace `json:"diskSpace,omitempty"`
	Error     string    `json:"error,omitempty"`
}

// DiskSpace is what a disk lacks.
type DiskSpace string

// What disks lack.
const (
	DiskOnReserve DiskSpace = "reserve"   // the file system has little room; the node's files have some of their own
	DiskLow       DiskSpace = "low"       // there is no room for what makes objects larger
	DiskNoRoom    DiskSpace = "snapshot"  // there is no room for the snapshot that the node needs
	DiskFull      DiskSpace = "full"      // nor for anything but compaction
	DiskReadOnly  DiskSpace = "read-only" // it takes no writes
)

// ClusterStatus is what one node found out by asking all members.
type ClusterStatus struct {
	ClusterID  proto.ClusterID `json:"clusterID"`
	AnsweredBy proto.NodeID    `json:"answeredBy"`
	Leader     proto.NodeID    `json:"leader,omitempty"` // that leads in the newest term, if anybody does
	Voters     int             `json:"voters"`
	LiveVoters int             `json:"liveVoters"`
	Quorum     bool            `json:"quorum"` // a majority of the voters answered
	// FeatureVersion is the one that the cluster speaks: the newest that any member has
	// reported. It is raised when all members support a newer one, and never falls.
	FeatureVersion uint32         `json:"featureVersion,omitempty"`
	Members        []MemberStatus `json:"members"`
	// Waiting is why the node that answers is not part of a cluster yet.
	Waiting string `json:"waiting,omitempty"`
	// Diverged says where members' states differ. Anything here needs a person.
	Diverged []string `json:"diverged,omitempty"`
	// WrongStates says, by node id, which members have stopped because their state was
	// wrong. They are to be removed, by id, and replaced.
	WrongStates map[proto.NodeID]WrongState `json:"wrongStates,omitempty"`
	// Notices are for a person: what is out of the ordinary, but no fault of a member.
	Notices []string `json:"notices,omitempty"`
}

// WrongState is what a member reported before it stopped.
type WrongState struct {
	Name  string `json:"name"`
	Found string `json:"found"` // for a person
}

// errorBody is the body of every answer that is not 2xx.
type errorBody struct {
	Error string `json:"error"`
	Code  string `json:"code,omitempty"` // see httpErrors
}
