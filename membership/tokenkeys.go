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
	// TokenLifetime is for how long a token of a pod is valid at most.
	TokenLifetime = 365 * 24 * time.Hour

	maxTokenKey = 1 << 10 // bytes of a public key
)

// tokenKeyRecord is a value of TableTokenKeys: the public key of a node.
type tokenKeyRecord struct {
	// Cluster is where the node is a member. A backup brings the keys of another cluster's
	// members along.
	Cluster proto.ClusterID `json:"clusterID"`
	Key     []byte          `json:"publicKey"` // SubjectPublicKeyInfo, DER
}

// removalRecord is a value of TableRemoved.
type removalRecord struct {
	Name    string    `json:"name"`
	Address string    `json:"address"`
	At      time.Time `json:"at"`
	// TokensUntil is until when the tokens hold that the node has signed before At. Zero:
	// none does.
	TokensUntil time.Time `json:"tokensUntil,omitzero"`
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

// ReadTokenKeys returns the keys of nodes that are in force as a state knows in which the
// cluster has an id, ordered by node id. A record that cannot be read is not a key. Safe for
// concurrent use; it does not wait.
//
// A node's key counts until the record of its removal is there: that one write ends it. The
// key's own record is deleted later, and need not be.
func ReadTokenKeys(kv interface {
	List(table string) (map[string][]byte, error)
}, cluster proto.ClusterID) ([]TokenKey, error) {
	records, err := kv.List(TableTokenKeys)
	if err != nil {
		return nil, fmt.Errorf("token keys: %w", err)
	}
	removed, err := removals(kv)
	if err != nil {
		return nil, fmt.Errorf("token keys: %w", err)
	}
	var out []TokenKey
	for id, raw := range records {
		k := TokenKey{Node: proto.NodeID(id)}
		if r, gone := removed[k.Node]; gone {
			if r.TokensUntil.IsZero() {
				continue
			}
			k.Until, k.IssuedBefore = r.TokensUntil, r.At
		}
		var of proto.ClusterID
		if k.Public, of, err = readTokenKey(raw); err == nil && of == cluster {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b TokenKey) int { return cmp.Compare(a.Node, b.Node) })
	return out, nil
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
