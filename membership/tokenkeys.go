package membership

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/proto"
)

const (
	// TokenKeysFeature is the feature version from which on each node signs service account
	// tokens with a key of its own.
	TokenKeysFeature = 2

	// TokenLifetime is for how long a token of a pod is valid at most.
	TokenLifetime = 365 * 24 * time.Hour

	// sharedKey is the key in TableTokenKeys of what is decided about the key that follows
	// from the cluster's secret. It is no node id.
	sharedKey = "shared"

	// sharedAfterRemovals is for how long tokens of that key are accepted after the cluster
	// has gone over to the nodes' keys, if a member was removed before: it knows the key.
	// A kubelet has fetched new tokens for its pods within a day.
	sharedAfterRemovals = 25 * time.Hour

	maxTokenKey = 1 << 10 // bytes of a public key
)

// tokenKeyRecord is a value of TableTokenKeys: the public key of a node.
type tokenKeyRecord struct {
	// Cluster is where the node is a member. A backup brings the keys of another cluster's
	// members along.
	Cluster proto.ClusterID `json:"clusterID"`
	Key     []byte          `json:"publicKey"` // SubjectPublicKeyInfo, DER
}

// sharedKeyRecord is the value of sharedKey: from when on no member signs with that key any
// more, and until when its tokens are accepted. Without it there is no end.
type sharedKeyRecord struct {
	Cluster proto.ClusterID `json:"clusterID"`
	Retired time.Time       `json:"retired"`
	Until   time.Time       `json:"until"`
}

// removalRecord is a value of TableRemoved.
type removalRecord struct {
	Name    string    `json:"name"`
	Address string    `json:"address"`
	At      time.Time `json:"at"`
	// TokensUntil is until when the tokens hold that the node has signed before At. Zero:
	// none does.
	TokensUntil time.Time `json:"tokensUntil,omitzero"`
	// EndsSharedKey ends the tokens of the key that follows from the cluster's secret: the
	// node knows it.
	EndsSharedKey bool `json:"endsSharedKey,omitempty"`
}

// TokenKey is a key that service account tokens are verified with.
type TokenKey struct {
	Node   proto.NodeID
	Public *ecdsa.PublicKey
	// Until is when its tokens end, if the node was removed and its tokens were kept. Zero:
	// they end as they say.
	Until time.Time
	// IssuedBefore is when the node was removed, or zero: it has signed nothing later.
	IssuedBefore time.Time
}

// TokenKeys say which service account tokens are accepted.
type TokenKeys struct {
	// Nodes are the keys of nodes, ordered by node id.
	Nodes []TokenKey
	// Shared says whether those of the cluster's secret are accepted, too; until
	// SharedUntil, if that is not zero.
	Shared      bool
	SharedUntil time.Time
	// SignShared says that nodes sign with the secret's key: a member might know no other.
	SignShared bool
}

// ReadTokenKeys returns the keys that are in force as a state knows, in which the cluster has
// an id and speaks a feature version. A record that cannot be read is no key. Safe for
// concurrent use; it does not wait.
//
// A node's key counts until the record of its removal is there: that one write ends it. The
// key's own record is deleted later, and need not be.
func ReadTokenKeys(kv interface {
	List(table string) (map[string][]byte, error)
}, cluster proto.ClusterID, feature uint32) (TokenKeys, error) {
	if feature < TokenKeysFeature {
		return TokenKeys{Shared: true, SignShared: true}, nil
	}
	records, err := kv.List(TableTokenKeys)
	if err != nil {
		return TokenKeys{}, fmt.Errorf("token keys: %w", err)
	}
	removed, err := removals(kv)
	if err != nil {
		return TokenKeys{}, fmt.Errorf("token keys: %w", err)
	}
	var out TokenKeys
	out.Shared, out.SharedUntil = sharedInForce(records[sharedKey], removed, cluster)
	for id, raw := range records {
		k := TokenKey{Node: proto.NodeID(id)}
		if id == sharedKey {
			continue
		}
		if r, gone := removed[k.Node]; gone {
			if r.TokensUntil.IsZero() {
				continue
			}
			k.Until, k.IssuedBefore = r.TokensUntil, r.At
		}
		var of proto.ClusterID
		if k.Public, of, err = readTokenKey(raw); err == nil && of == cluster {
			out.Nodes = append(out.Nodes, k)
		}
	}
	slices.SortFunc(out.Nodes, func(a, b TokenKey) int { return cmp.Compare(a.Node, b.Node) })
	return out, nil
}

// sharedInForce says whether, and until when, tokens of the secret's key are accepted.
func sharedInForce(raw []byte, removed map[proto.NodeID]removalRecord, cluster proto.ClusterID) (bool, time.Time) {
	for _, r := range removed {
		if r.EndsSharedKey {
			return false, time.Time{}
		}
	}
	if raw == nil {
		return true, time.Time{}
	}
	var r sharedKeyRecord
	if json.Unmarshal(raw, &r) != nil || r.Cluster != cluster || r.Until.IsZero() {
		return false, time.Time{}
	}
	return true, r.Until
}

// removals returns TableRemoved.
func removals(kv interface {
	List(table string) (map[string][]byte, error)
}) (map[proto.NodeID]removalRecord, error) {
	raw, err := kv.List(TableRemoved)
	if err != nil {
		return nil, fmt.Errorf("removed members: %w", err)
	}
	out := make(map[proto.NodeID]removalRecord, len(raw))
	for id, v := range raw {
		out[proto.NodeID(id)] = readRemoval(v)
	}
	return out, nil
}

// readRemoval reads a value of TableRemoved. One that cannot be read is of a removal
// nevertheless, and keeps nothing.
func readRemoval(raw []byte) removalRecord {
	var r removalRecord
	if json.Unmarshal(raw, &r) != nil {
		return removalRecord{}
	}
	return r
}

// readTokenKey reads a value of TableTokenKeys.
func readTokenKey(raw []byte) (*ecdsa.PublicKey, proto.ClusterID, error) {
	var r tokenKeyRecord
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, "", err
	}
	if len(r.Key) > maxTokenKey {
		return nil, "", fmt.Errorf("a key of %d bytes", len(r.Key))
	}
	parsed, err := x509.ParsePKIXPublicKey(r.Key)
	if err != nil {
		return nil, "", err
	}
	key, ok := parsed.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, "", errors.New("not an ECDSA key of P-256")
	}
	return key, r.Cluster, nil
}
