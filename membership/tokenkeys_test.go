package membership

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/membership/pki"
	"github.com/quorate/quorate/proto"
)

// tokenTables are TableTokenKeys and TableRemoved.
type tokenTables struct{ keys, removed map[string][]byte }

func (k tokenTables) List(table string) (map[string][]byte, error) {
	switch table {
	case TableTokenKeys:
		return k.keys, nil
	case TableRemoved:
		return k.removed, nil
	}
	return nil, fmt.Errorf("no table %s", table)
}

func encoded(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	must.OK(t, err)
	return b
}

// tokenKeyOf is the record of a new key.
func tokenKeyOf(t testing.TB, cluster proto.ClusterID) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	return encoded(t, tokenKeyRecord{cluster, spki(t, &key.PublicKey)})
}

func spki(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	must.OK(t, err)
	return der
}

// keysInForce are what ReadTokenKeys returns.
type keysInForce []TokenKey

func (k keysInForce) String() string {
	var out []string
	for _, n := range k {
		s := string(n.Node) + until(n.Until)
		if !n.IssuedBefore.IsZero() {
			s += " of before " + n.IssuedBefore.Format(time.DateOnly)
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

func until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " until " + t.Format(time.DateOnly)
}

// TestReadTokenKeys: which keys count, by what the tables say.
func TestReadTokenKeys(t *testing.T) {
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a, b := tokenKeyOf(t, "here"), tokenKeyOf(t, "here")
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	must.OK(t, err)
	other, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	must.OK(t, err)
	type table = map[string][]byte
	ended := encoded(t, removalRecord{Name: "b", At: day})
	kept := encoded(t, removalRecord{Name: "b", At: day, TokensUntil: day.AddDate(1, 0, 0)})
	for _, c := range []struct {
		name    string
		keys    table
		removed table
		want    string
	}{
		{"no key yet", nil, nil, ""},
		{"members", table{"b": b, "a": a}, nil, "a, b"},
		{"a removal", table{"a": a, "b": b}, table{"b": ended}, "a"},
		{"a removal of another", table{"a": a}, table{"b": ended}, "a"},
		{"a removal that keeps tokens", table{"a": a, "b": b}, table{"b": kept}, "a, b until 2027-01-01 of before 2026-01-01"},
		{"a removal that cannot be read", table{"a": a, "b": b}, table{"b": []byte("{")}, "a"},
		{"a backup of another cluster", table{"a": a, "b": tokenKeyOf(t, "there")}, nil, "a"},
		{"no JSON", table{"a": a, "b": []byte("key")}, nil, "a"},
		{"no key", table{"a": a, "b": encoded(t, tokenKeyRecord{"here", []byte("key")})}, nil, "a"},
		{"other keys", table{"a": a, "b": encoded(t, tokenKeyRecord{"here", spki(t, &long.PublicKey)}), "c": encoded(t, tokenKeyRecord{"here", spki(t, &other.PublicKey)})}, nil, "a"},
		{"too large", table{"a": a, "b": encoded(t, tokenKeyRecord{"here", make([]byte, maxTokenKey+1)})}, nil, "a"},
	} {
		got, err := ReadTokenKeys(tokenTables{c.keys, c.removed}, "here")
		if err != nil || keysInForce(got).String() != c.want {
			t.Errorf("%s: %q %v, want %q", c.name, keysInForce(got), err, c.want)
		}
	}
}

// FuzzReadTokenKeys: whatever lies in the tables, keys are keys of P-256, and none of a node
// that was removed without a word for its tokens.
func FuzzReadTokenKeys(f *testing.F) {
	good := tokenKeyOf(f, "here")
	f.Add(good, []byte(nil))
	f.Add(good, encoded(f, removalRecord{At: time.Unix(1, 0), TokensUntil: time.Unix(2, 0)}))
	f.Add([]byte(`{"clusterID":"here","publicKey":"MFkw"}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, key, removal []byte) {
		tables := tokenTables{map[string][]byte{"a": key}, map[string][]byte{}}
		if removal != nil {
			tables.removed["a"] = removal
		}
		got, err := ReadTokenKeys(tables, "here")
		must.OK(t, err)
		for _, k := range got {
			if k.Node != "a" || k.Public.Curve != elliptic.P256() {
				t.Errorf("%+v", k)
			}
			if removal != nil && k.Until.IsZero() {
				t.Error("the key of a removed node has no end")
			}
		}
	})
}

// tokenKeys is what a machine's state says.
func (mc *machine) tokenKeys(t *testing.T) keysInForce {
	t.Helper()
	keys, err := ReadTokenKeys(fakeKV{mc}, mc.node.raft.Cluster())
	must.OK(t, err)
	return keys
}

// of are the nodes of keys.
func (k keysInForce) of(id proto.NodeID) *TokenKey {
	for i := range k {
		if k[i].Node == id {
			return &k[i]
		}
	}
	return nil
}

// published waits until each machine has a key in the state, which is its own.
func (w *world) published(t *testing.T, all ...*machine) {
	t.Helper()
	for _, mc := range all {
		w.await(mc.name+" has published its key", func() bool {
			k := mc.tokenKeys(t).of(mc.id)
			return k != nil && k.Public.Equal(&mc.cert.TokenKey().PublicKey)
		})
	}
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passed += d
}

// TestTokenKeys: every node publishes its key, and has the same one after a restart; a removal
// ends that of the node.
func TestTokenKeys(t *testing.T) {
	t.Parallel()
	w, all := three(t)
	leader, follower, third := all[0], all[1], all[2]
	w.published(t, all...)
	w.stop(follower)
	w.start(follower, nil)
	if k := follower.tokenKeys(t).of(follower.id); k == nil || !k.Public.Equal(&follower.cert.TokenKey().PublicKey) {
		t.Error("a restart has made another key")
	}
	w.await("the follower answers, so that the cluster can spare another", func() bool {
		_, err := client(t, leader).Remove(t.Context(), third.name, false, KeepTokens{})
		if err != nil && !strings.Contains(err.Error(), "of which 1 answer") {
			t.Fatal(err)
		}
		return err == nil
	})
	keys := leader.tokenKeys(t)
	if len(keys) != 2 || keys.of(third.id) != nil {
		t.Errorf("after the removal: %v", keys)
	}
	if _, there := leader.node.kv.Get(TableTokenKeys, string(third.id)); there {
		t.Error("its key is stored still")
	}
}

// TestKeepTokens: what a removed node has signed holds for the time that was asked for, and
// its key is gone after that.
func TestKeepTokens(t *testing.T) {
	t.Parallel()
	w, all := three(t)
	leader, third := all[0], all[2]
	w.published(t, all...)
	if _, err := client(t, leader).Remove(t.Context(), third.name, false, KeepTokens{Keep: true, For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	keys := leader.tokenKeys(t)
	k := keys.of(third.id)
	if k == nil {
		t.Fatalf("%v", keys)
	}
	//wall: IssuedBefore is the present, and no other time is nearer than an hour
	if left := time.Until(k.Until); left < 59*time.Minute || left > time.Hour || time.Since(k.IssuedBefore) > time.Minute {
		t.Errorf("%v", keys)
	}
	w.pass(time.Hour)
	w.await("the key is dropped", func() bool {
		_, there := leader.node.kv.Get(TableTokenKeys, string(third.id))
		return !there
	})

	second := all[1]
	if _, err := client(t, leader).Remove(t.Context(), second.name, true, KeepTokens{Keep: true}); err != nil {
		t.Fatal(err)
	}
	if k := leader.tokenKeys(t).of(second.id); k == nil || k.Until.Sub(k.IssuedBefore) != TokenLifetime {
		t.Errorf("without a time: %+v", k)
	}
}

// TestInterruptedRemovalEndsTokens: a removal whose record was lost ends tokens when it is
// completed, whatever was asked for: better than to trust a key that nobody speaks for.
func TestInterruptedRemovalEndsTokens(t *testing.T) {
	t.Parallel()
	w, all := three(t)
	leader, third := all[0], all[2]
	w.published(t, all...)
	w.refuse(TableRemoved)
	if _, err := client(t, leader).Remove(t.Context(), third.name, false, KeepTokens{Keep: true}); err == nil {
		t.Fatal("the removal was reported as complete")
	}
	w.stop(third)
	w.refuse()
	w.await("the key is dropped", func() bool {
		_, there := leader.node.kv.Get(TableTokenKeys, string(third.id))
		return IsRemoved(leader.node.kv, third.id) && !there
	})
}

// TestStrangeTokenKeys: a key of a node that is no member, which only a member can have
// written, is dropped, and so is what a removed node had on its way.
func TestStrangeTokenKeys(t *testing.T) {
	t.Parallel()
	w, all := three(t)
	leader, third := all[0], all[2]
	w.published(t, all...)
	cluster := leader.node.raft.Cluster()
	gone := func(id string) {
		t.Helper()
		w.await("the key of "+id+" is dropped", func() bool {
			_, there := leader.node.kv.Get(TableTokenKeys, id)
			return !there
		})
	}
	must.OK(t, third.node.kv.Put(t.Context(), TableTokenKeys, "ghost", tokenKeyOf(t, cluster), false))
	gone("ghost")
	if _, err := client(t, leader).Remove(t.Context(), third.name, false, KeepTokens{}); err != nil {
		t.Fatal(err)
	}
	must.OK(t, leader.node.kv.Put(t.Context(), TableTokenKeys, string(third.id), tokenKeyOf(t, cluster), false))
	if k := leader.tokenKeys(t).of(third.id); k != nil {
		t.Error("the key of a removed node counts")
	}
	gone(string(third.id))
}

// TestSameTokenKey: members of which one has the other's file say so, both; not so one that comes
// back with its own file as a new member.
func TestSameTokenKey(t *testing.T) {
	t.Parallel()
	w, all := three(t)
	leader, second, third := all[0], all[1], all[2]
	w.published(t, all...)
	file := func(mc *machine) string { return filepath.Join(mc.dir, "pki", pki.FileTokenKey) }
	warnings := func(mc *machine, of proto.NodeID) (n int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, line := range mc.logs {
			if strings.Contains(line, "with the key of this node") && strings.Contains(line, string(of)) {
				n++
			}
		}
		return n
	}
	copied, err := os.ReadFile(file(second))
	must.OK(t, err)
	own, err := os.ReadFile(file(third))
	must.OK(t, err)
	w.stop(third)
	must.OK(t, os.WriteFile(file(third), copied, 0o600))
	w.start(third, nil)
	w.await("both say so", func() bool { return warnings(second, third.id) > 0 && warnings(third, second.id) > 0 })
	if n := warnings(leader, third.id); n > 0 {
		t.Error("a node with a key of its own says so too")
	}
	// Its removal would end no tokens.
	_, err = client(t, leader).Remove(t.Context(), third.name, false, KeepTokens{})
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "signs service account tokens with the same key as "+second.name) {
		t.Errorf("the removal of one of them: %v", err)
	}
	w.stop(third)
	must.OK(t, os.WriteFile(file(third), own, 0o600))
	w.start(third, nil)
	w.published(t, third)
	w.await("nobody shares it", func() bool { return len(second.node.sameTokenKey(second.id)) == 0 })

	was := third.id
	if _, err := client(t, leader).Remove(t.Context(), third.name, false, KeepTokens{Keep: true}); err != nil {
		t.Fatal(err)
	}
	w.stop(third)
	w.wipe(third, true)
	must.OK(t, os.MkdirAll(filepath.Dir(file(third)), 0o700))
	must.OK(t, os.WriteFile(file(third), own, 0o600))
	w.run(strings.Fields("start " + third.name + " join=" + leader.name + "," + second.name))
	w.published(t, third)
	if k := leader.tokenKeys(t).of(was); k == nil || len(third.node.sameTokenKey(third.id)) > 0 {
		t.Errorf("the key that it had before: %v, shared with %v", k, third.node.sameTokenKey(third.id))
	}
	if n := warnings(second, third.id) + warnings(second, was); n != 1 {
		t.Errorf("it was said %d times", n)
	}
}

// TestKeepTokensParameter: what the admin API takes.
func TestKeepTokensParameter(t *testing.T) {
	for in, want := range map[string]uint64{"": 0, "false": 0, "true": 3600, "0": 0, "86400": 86400, "4294967296": 1 << 32} {
		if got, err := keepTokens(in, time.Hour); err != nil || got != want {
			t.Errorf("%q: %d %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"24h", "-1", "4294967297", "99999999999999999999", "yes"} {
		if got, err := keepTokens(in, time.Hour); err == nil || !strings.Contains(err.Error(), "must be true, false, or") {
			t.Errorf("%q: %d %v", in, got, err)
		}
	}
}
