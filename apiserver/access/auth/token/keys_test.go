package token

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/quorate/quorate/internal/must"
)

const unknownKey = "invalid signature: no member of the cluster signs with the key that the token names"

// TestKeysEnd: a token that was verified, and remembered, ends with its key.
func TestKeysEnd(t *testing.T) {
	n1, n3 := newKey(t), newKey(t)
	w := newWorld(t, n3, &n1.PublicKey)
	w.put("serviceaccounts", "ns/robot", "u1", time.Time{})
	third := w.issue(Claims{}, "api")
	w.inForce(n1, Key{Public: &n1.PublicKey}, Key{Public: &n3.PublicKey})
	first := w.issue(Claims{}, "api")
	w.expect(first, "")
	w.expect(third, "")

	w.inForce(n1, Key{Public: &n1.PublicKey})
	for range 2 {
		w.expect(third, unknownKey)
		w.expect(first, "")
	}
	// What is not remembered is refused as well.
	w.a.verified = nil
	w.expect(third, unknownKey)
	w.inForce(n1, Key{Public: &n1.PublicKey}, Key{Public: &n3.PublicKey})
	w.expect(third, "")
}

// TestKeysOfRemovedNode: what was signed before a removal holds until the time that was said,
// also if the token says more.
func TestKeysOfRemovedNode(t *testing.T) {
	n1, n3 := newKey(t), newKey(t)
	w := newWorld(t, n3)
	w.put("serviceaccounts", "ns/robot", "u1", time.Time{})
	removed := w.now.Add(10 * time.Minute)
	before := w.issue(Claims{}, "api")
	w.now = removed.Add(2 * time.Minute)
	after := w.issue(Claims{}, "api")
	kept := Key{Public: &n3.PublicKey, Until: removed.Add(30 * time.Minute), IssuedBefore: removed}
	for _, remembered := range []bool{true, false} {
		if !remembered {
			w.a.verified = nil
		}
		w.inForce(n1, Key{Public: &n1.PublicKey}, kept)
		w.now = removed.Add(2 * time.Minute)
		w.expect(before, "")
		w.expect(after, "service account token was issued after the node that signed it was removed from the cluster")
		if n := len(w.keys.public(w.now).Keys); n != 2 {
			t.Errorf("%d keys are shown", n)
		}
		w.now = kept.Until
		w.expect(before, unknownKey)
		if n := len(w.keys.public(w.now).Keys); n != 1 {
			t.Errorf("%d keys are shown after the end", n)
		}
		// Another node has the same key, for instance after a move of its directory.
		w.inForce(n1, kept, Key{Public: &n3.PublicKey}, kept)
		w.expect(before, "")
		// So has another one that was removed, and its tokens are kept for longer.
		longer := kept
		longer.Until = kept.Until.Add(time.Minute)
		for _, keys := range [][]Key{{kept, longer}, {longer, kept}} {
			w.now = kept.Until
			w.inForce(n1, keys...)
			w.expect(before, "")
			w.now = longer.Until
			w.expect(before, unknownKey)
		}
	}
}

// TestNoKeyYet: a node whose key is not published signs nothing, and verifies what others
// have signed.
func TestNoKeyYet(t *testing.T) {
	n1 := newKey(t)
	w := newWorld(t, n1)
	w.put("serviceaccounts", "ns/robot", "u1", time.Time{})
	issued := w.issue(Claims{}, "api")
	w.inForce(nil, Key{Public: &n1.PublicKey})
	if s, err := w.a.Issue(Spec{Now: w.now, ValidFor: time.Hour}); !errors.Is(err, ErrNoKey) {
		t.Errorf("%q %v", s, err)
	}
	w.expect(issued, "")
}

// TestNewerKey: a node that lags asks before it refuses a key that it does not have.
func TestNewerKey(t *testing.T) {
	n1, n3 := newKey(t), newKey(t)
	w := newWorld(t, n3)
	w.put("serviceaccounts", "ns/robot", "u1", time.Time{})
	issued := w.issue(Claims{}, "api")
	w.inForce(n1, Key{Public: &n1.PublicKey})
	asked := 0
	w.a.cfg.Confirm = func(context.Context) error { asked++; return errors.New("no leader") }
	w.expect(issued, unknownKey)
	w.a.cfg.Confirm = func(context.Context) error {
		asked++
		w.inForce(n1, Key{Public: &n1.PublicKey}, Key{Public: &n3.PublicKey})
		return nil
	}
	w.expect(issued, "")
	w.expect(issued, "")
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

// TestUnknownKeysCauseNoLoad: anyone can make up key ids. All of them together cost few
// questions to a quorum, a bounded number of requests wait, and those who wait are right.
func TestUnknownKeysCauseNoLoad(t *testing.T) {
	w := newWorld(t, newKey(t))
	w.put("serviceaccounts", "ns/robot", "u1", time.Time{})
	strangers := make([]string, 40)
	for i := range strangers {
		w.inForce(newKey(t))
		strangers[i] = w.issue(Claims{}, "api")
	}
	mine := newKey(t)
	w.inForce(mine)
	late := w.issue(Claims{}, "api")
	var keys atomic.Pointer[Keys]
	keys.Store(new(Keys))
	synctest.Test(t, func(t *testing.T) {
		var asked, under, most atomic.Int64
		a, err := New(Config{
			Issuer: "https://issuer", Audiences: []string{"api"}, Store: w.mem, Keys: keys.Load, Now: func() time.Time { return w.now },
			Confirm: func(ctx context.Context) error {
				asked.Add(1)
				most.Store(max(most.Load(), under.Add(1)))
				defer under.Add(-1)
				time.Sleep(50 * time.Millisecond)
				return ctx.Err()
			},
		})
		must.OK(t, err)
		began := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			for _, s := range strangers {
				wg.Go(func() {
					for range 5 {
						if u, _, _ := a.AuthenticateToken(t.Context(), s); u != nil {
							t.Error("accepted")
						}
					}
				})
			}
		}
		// In the middle of that a key becomes known to the quorum. Who has a token of it
		// then waits for a question that begins after that.
		time.Sleep(600 * time.Millisecond)
		known, err := NewKeys(nil, Key{Public: &mine.PublicKey})
		must.OK(t, err)
		wg.Wait()
		took := time.Since(began)
		if n := asked.Load(); n > int64(took/catchUpPause)+1 || most.Load() != 1 {
			t.Errorf("asked %d times in %v, %d at once", n, took, most.Load())
		}
		if a.newer.waiting != 0 || a.newer.next != nil {
			t.Errorf("%d wait", a.newer.waiting)
		}
		a.cfg.Confirm = func(context.Context) error { keys.Store(known); return nil }
		if _, ok, err := a.AuthenticateToken(t.Context(), late); !ok || err != nil {
			t.Errorf("a newer key: %v %v", ok, err)
		}
		// A short id is none.
		a.cfg.Confirm = func(context.Context) error { t.Error("asked"); return nil }
		if _, err := a.key(t.Context(), "short"); err == nil {
			t.Error("a key without a name")
		}
	})
}

// TestRoundsAreForThoseBefore: who comes while a question is under way waits for the next one,
// and one that ends early leaves the others theirs.
func TestRoundsAreForThoseBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c catchUp
		var state, seen atomic.Int64
		confirm := func(context.Context) error {
			now := state.Load() // what the quorum has when it is asked
			time.Sleep(time.Second)
			seen.Store(now)
			return nil
		}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				state.Add(1)
				want := state.Load()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				if i%5 == 1 {
					cancel() // its client has gone
				}
				defer cancel()
				if err := c.wait(ctx, confirm); err == nil && seen.Load() < want {
					t.Errorf("%d has waited and sees %d", want, seen.Load())
				} else if err != nil && i%5 != 1 {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		// Too many: the rest is told at once.
		refused := 0
		var mu sync.Mutex
		for range 3 * catchUpWaiters {
			wg.Go(func() {
				if errors.Is(c.wait(t.Context(), confirm), errTooManyWait) {
					mu.Lock()
					refused++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if refused != 2*catchUpWaiters {
			t.Errorf("%d were refused", refused)
		}
	})
}

// TestKeysDocument: the document follows the keys.
func TestKeysDocument(t *testing.T) {
	n1, n2 := newKey(t), newKey(t)
	w := newWorld(t, n1)
	h, err := w.a.OpenID("https://here/openid/v1/jwks")
	must.OK(t, err)
	shown := func() (ids []string) {
		r := httptest.NewRecorder()
		h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, KeysPath, nil))
		var set jose.JSONWebKeySet
		must.OK(t, json.Unmarshal(r.Body.Bytes(), &set))
		for _, k := range set.Keys {
			ids = append(ids, k.KeyID)
		}
		return ids
	}
	id := func(k *ecdsa.PrivateKey) string {
		s, err := keyID(&k.PublicKey)
		must.OK(t, err)
		return s
	}
	if ids := shown(); len(ids) != 1 || ids[0] != id(n1) {
		t.Errorf("%v", ids)
	}
	w.inForce(n1, Key{Public: &n2.PublicKey}, Key{Public: &n1.PublicKey})
	if ids := shown(); len(ids) != 2 || ids[0] != id(n2) || ids[1] != id(n1) {
		t.Errorf("%v", ids)
	}
}

// BenchmarkAuthenticateFirst is a request with a token that was not seen before.
func BenchmarkAuthenticateFirst(b *testing.B) {
	w := newWorld(b, newKey(b))
	w.put("serviceaccounts", "ns/robot", "u1", time.Time{})
	token := w.issue(Claims{}, "api")
	b.ReportAllocs()
	for b.Loop() {
		clear(w.a.verified)
		if _, ok, err := w.a.AuthenticateToken(context.Background(), token); !ok || err != nil {
			b.Fatal(err)
		}
	}
}

// TestUses: a key that ends between the check and the word that a request uses it is found out.
func TestUses(t *testing.T) {
	n1, n3 := newKey(t), newKey(t)
	w := newWorld(t, n3)
	w.put("serviceaccounts", "ns/robot", "u1", time.Time{})
	issued := w.issue(Claims{}, "api")
	id, err := keyID(&n3.PublicKey)
	must.OK(t, err)
	var told []string
	first := true
	w.a.cfg.Uses = func(_ context.Context, key string) bool { told = append(told, key); return first }
	w.expect(issued, "")
	both := w.keys
	w.a.cfg.Uses = func(context.Context, string) bool {
		w.inForce(n1, Key{Public: &n1.PublicKey})
		return first
	}
	w.expect(issued, unknownKey)
	// On a connection of which that is known, the code that ends them has found it.
	w.keys, first = both, false
	w.expect(issued, "")
	if len(told) != 1 || told[0] != id {
		t.Errorf("told %v", told)
	}
}
