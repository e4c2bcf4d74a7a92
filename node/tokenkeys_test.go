package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth/token"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// keyWorld is a state, and one node's keys in it.
type keyWorld struct {
	t     testing.TB
	state *mvcc.State
	index proto.RaftIndex
	keys  *tokenKeys
	a     *token.Accounts
}

func (w *keyWorld) State() *mvcc.State { return w.state }

func newKeyWorld(t testing.TB) *keyWorld {
	w := &keyWorld{t: t, state: mvcc.New()}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	w.keys = &tokenKeys{store: w, own: own, log: slog.New(slog.DiscardHandler)}
	if w.a, err = token.New(token.Config{Issuer: "https://issuer", Keys: w.keys.Keys, Store: w}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *keyWorld) apply(kind proto.Kind, m proto.Message) {
	w.t.Helper()
	frame, err := proto.Encode(kind, m)
	must.OK(w.t, err)
	w.index++
	if _, err := w.state.Apply(w.index, 1, frame); err != nil {
		w.t.Fatal(err)
	}
	w.state.Publish()
}

func (w *keyWorld) put(table, key, value string) {
	w.t.Helper()
	w.apply(proto.KindWrite, &proto.Write{Table: table, Key: key, Op: proto.Op_OP_PUT, Value: []byte(value)})
}

func (w *keyWorld) name(cluster string) {
	w.t.Helper()
	w.apply(proto.KindCluster, &proto.Cluster{ClusterId: cluster, FeatureVersion: 1})
}

// publish writes the node's key.
func (w *keyWorld) publish(node, cluster string) {
	w.t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&w.keys.own.PublicKey)
	must.OK(w.t, err)
	w.put(membership.TableTokenKeys, node, fmt.Sprintf(`{"clusterID":%q,"publicKey":%q}`, cluster, base64.StdEncoding.EncodeToString(der)))
}

// signs says which key a token is signed with now: own or none.
func (w *keyWorld) signs() string {
	w.t.Helper()
	s, err := w.a.Issue(token.Spec{Now: time.Now(), ValidFor: time.Hour})
	if errors.Is(err, token.ErrNoKey) {
		return "none"
	}
	must.OK(w.t, err)
	only, err := token.NewKeys(nil, token.Key{Public: &w.keys.own.PublicKey})
	must.OK(w.t, err)
	verifier, err := token.New(token.Config{Issuer: "https://issuer", Keys: func() *token.Keys { return only }, Store: w})
	must.OK(w.t, err)
	// It is bound to an account that is not here; a signature that does not hold is told first.
	if _, _, err := verifier.AuthenticateToken(w.t.Context(), s); err != nil && err.Error() == `serviceaccounts "" not found` {
		return "own"
	}
	return "another"
}

// TestTokenKeysFollow: what a node signs with follows from its state alone, as soon as that
// changes; and from another state, which a snapshot brings.
func TestTokenKeysFollow(t *testing.T) {
	w := newKeyWorld(t)
	expect := func(when, want string) {
		t.Helper()
		if got := w.signs(); got != want {
			t.Errorf("%s: it signs with %s, want %s", when, got, want)
		}
	}
	expect("at the start", "none")
	w.name("c")
	expect("in a cluster", "none")
	w.publish("n1", "c")
	expect("with its key published", "own")
	before := w.keys.Keys()
	w.put("pods", "ns/p", "{}")
	if w.keys.Keys() != before {
		t.Error("the keys are read again for nothing")
	}
	w.put(membership.TableRemoved, "n1", `{"name":"n1"}`)
	expect("removed", "none")

	w.state, w.index = mvcc.New(), 0
	w.name("d")
	expect("before its key is published", "none")
	w.publish("n1", "c")
	expect("with the key of another cluster", "none")
	w.publish("n2", "d")
	expect("published", "own")
	until, err := json.Marshal(time.Now().Add(time.Hour))
	must.OK(t, err)
	w.put(membership.TableRemoved, "n2", fmt.Sprintf(`{"at":"2026-01-01T00:00:00Z","tokensUntil":%s}`, until))
	expect("removed, with its tokens kept", "none")
}

// TestTokenKeysAtOnce: readers see a change as soon as it is visible, while others write.
func TestTokenKeysAtOnce(t *testing.T) {
	w := newKeyWorld(t)
	w.name("c")
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					w.keys.Keys()
				}
			}
		})
	}
	for i := range 200 {
		w.put("pods", "ns/p", fmt.Sprint(i))
		w.publish("n1", "c")
		if got := w.signs(); got != "own" {
			t.Fatalf("it signs with %s", got)
		}
		w.apply(proto.KindWrite, &proto.Write{Table: membership.TableTokenKeys, Key: "n1", Op: proto.Op_OP_DELETE})
		if got := w.signs(); got != "none" {
			t.Fatalf("without a published key it signs with %s", got)
		}
	}
	close(done)
	wg.Wait()
}

// BenchmarkTokenKeys is what each request with a token asks, while others write.
func BenchmarkTokenKeys(b *testing.B) {
	w := newKeyWorld(b)
	w.name("c")
	w.publish("n1", "c")
	w.put(membership.TableRemoved, "n0", `{}`)
	w.keys.Keys()
	w.put("pods", "ns/p", "{}")
	b.ReportAllocs()
	for b.Loop() {
		w.keys.Keys()
	}
}
