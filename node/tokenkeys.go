package node

import (
	"crypto"
	"crypto/ecdsa"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/apiserver/access/auth/token"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// tokenKeys are the keys of service account tokens that are in force in this node's state, as
// package membership says. It is safe for concurrent use. A call costs some loads, unless one
// of the tables has changed: then the first call reads them.
type tokenKeys struct {
	fixed *token.Keys // by files; then there are no others
	store interface{ State() *mvcc.State }
	own   *ecdsa.PrivateKey
	log   *slog.Logger

	now atomic.Pointer[tokenKeysAt]
	mu  sync.Mutex // held while the tables are read
}

// tokenKeyTables are what the keys follow from, beside the mark.
var tokenKeyTables = [...]string{membership.TableTokenKeys, membership.TableRemoved}

// tokenKeysAt are keys and the state that they are of.
type tokenKeysAt struct {
	state *mvcc.State
	// tables are nil as long as they do not exist.
	tables  [len(tokenKeyTables)]*mvcc.Table
	read    proto.Revision // up to which the tables were read
	cluster proto.ClusterID
	keys    *token.Keys
}

// current reports whether keys follow from all that is visible in a state.
func (k *tokenKeysAt) current(state *mvcc.State) bool {
	if k == nil || k.state != state {
		return false
	}
	mark := state.Mark()
	if mark.Applied == k.read {
		return true
	}
	if mark.Cluster != k.cluster {
		return false
	}
	for i, t := range k.tables {
		if t == nil {
			if t = state.Table(tokenKeyTables[i]); t == nil {
				continue
			}
		}
		if t.Latest() > k.read {
			return false
		}
	}
	return true
}

// Keys returns those in force now.
func (s *tokenKeys) Keys() *token.Keys {
	if s.fixed != nil {
		return s.fixed
	}
	state := s.store.State()
	if k := s.now.Load(); k.current(state) {
		return k.keys
	}
	return s.renew()
}

func (s *tokenKeys) renew() *token.Keys {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		state := s.store.State()
		if k := s.now.Load(); k.current(state) {
			return k.keys
		}
		// The mark first: what it stands for is in the tables that are found after it.
		mark := state.Mark()
		next := &tokenKeysAt{state: state, read: mark.Applied, cluster: mark.Cluster}
		for i, name := range tokenKeyTables {
			next.tables[i] = state.Table(name)
		}
		in, err := membership.ReadTokenKeys(tablesAt{state}, mark.Cluster)
		if err != nil {
			continue // the floor has passed what was newest a moment ago
		}
		if next.keys, err = s.keysOf(in); err != nil {
			s.log.Error("the keys of service account tokens cannot be used", "err", err)
			next.keys = new(token.Keys)
		}
		s.now.Store(next)
		return next.keys
	}
}

// keysOf has package token verify with what package membership found, and sign with this
// node's own key if the others can verify by it.
func (s *tokenKeys) keysOf(in []membership.TokenKey) (*token.Keys, error) {
	var verify []token.Key
	var sign crypto.Signer
	for _, k := range in {
		verify = append(verify, token.Key{Public: k.Public, Until: k.Until, IssuedBefore: k.IssuedBefore})
		if k.Until.IsZero() && k.Public.Equal(&s.own.PublicKey) {
			sign = s.own
		}
	}
	return token.NewKeys(sign, verify...)
}

// tablesAt are the small tables of one state.
type tablesAt struct{ state *mvcc.State }

func (s tablesAt) List(table string) (map[string][]byte, error) { return listTable(s.state, table) }
