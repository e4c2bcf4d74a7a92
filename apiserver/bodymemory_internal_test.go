package apiserver

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestDecodingRoom: what is taken is bounded, for all and for each user; who waits gets room in
// order, and not for ever.
func TestDecodingRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused atomic.Int64
		var d decoding
		d.init(80, func() { refused.Add(1) })
		ctx := t.Context()
		got := make(chan string, 100)
		ask := func(user string, cost int64) {
			go func() {
				if d.take(ctx, user, cost) {
					got <- user
				} else {
					got <- "not " + user
				}
			}()
			synctest.Wait()
		}
		next := func(want string) {
			t.Helper()
			synctest.Wait()
			select {
			case s := <-got:
				if s != want {
					t.Errorf("%s, want %s", s, want)
				}
			default:
				if want != "" {
					t.Errorf("nobody, want %s", want)
				}
			}
		}
		ask("a", 10)
		next("a")
		ask("a", 1) // a's share is used up
		next("")
		for _, user := range []string{"b", "c", "d", "e", "f", "g"} {
			ask(user, 10)
			next(user)
		}
		ask("h", 11) // more than a share, alone, but there is no room
		next("")
		ask("i", 5) // neither for it
		next("")
		d.give("b", 10) // 70 - 60 are left: not enough for h, who does not keep i from it
		next("i")
		next("")
		d.give("i", 5)
		d.give("g", 10)
		next("h")
		next("")
		d.give("a", 10)
		next("a")
		for range maxDecodingWaits {
			ask("c", 10)
		}
		next("")
		ask("c", 10)
		next("not c")
		time.Sleep(longestDecodingWait)
		for range maxDecodingWaits {
			next("not c")
		}
		if refused.Load() != maxDecodingWaits+1 {
			t.Errorf("%d were refused", refused.Load())
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if d.take(ended, "c", 10) {
			t.Error("a request that has ended got room")
		}
		for user, cost := range map[string]int64{"a": 1, "c": 10, "d": 10, "e": 10, "f": 10, "h": 11} {
			d.give(user, cost)
		}
		if d.held != 0 || len(d.users) != 0 || len(d.waiting) != 0 {
			t.Errorf("left: %d, %d users, %d waiting", d.held, len(d.users), len(d.waiting))
		}
		if !d.read("a", 10, 10) || d.read("a", 1, 10) {
			t.Error("the bytes that come are not bounded")
		}
		d.readDone("a", 10)
		if len(d.users) != 0 {
			t.Error("a user is not forgotten")
		}
	})
}

// TestDecodingQueues: nobody waits because of what another user waits for, and small requests
// have a reserve.
func TestDecodingQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const unit = 100
		var d decoding
		d.init(smallDecoding*unit, func() {}) // small: up to unit
		ctx, cancel := context.WithCancel(t.Context())
		at := func(user string, cost int64) bool {
			t.Helper()
			began := time.Now()
			ok := d.take(ctx, user, cost)
			return ok && time.Since(began) == 0
		}
		waits := func(user string, cost int64) {
			t.Helper()
			go func() {
				if d.take(ctx, user, cost) {
					t.Errorf("%s got %d", user, cost)
				}
			}()
			synctest.Wait()
		}
		if !at("a", 10*unit) {
			t.Fatal("there is no room for the first")
		}
		waits("b", d.room+1) // as long as there is another large one
		for _, c := range []struct {
			user string
			cost int64
			why  string
		}{
			{"c", 1, "a small one behind a large one of another user"},
			{"c", 5 * unit, "a large one behind a large one of another user"},
			{"b", unit, "a small one behind a large one of the same user"},
			{"a", 5 * unit, "another one of a user who holds some"},
		} {
			if !at(c.user, c.cost) {
				t.Errorf("has to wait: %s", c.why)
			}
			d.give(c.user, c.cost)
		}
		waits("b", 2*unit)
		// All that large ones may have.
		large := map[string]int64{}
		for _, user := range []string{"d", "e", "f", "g", "h", "i"} {
			if !at(user, d.share) {
				t.Fatalf("%s has to wait for his share", user)
			}
			large[user] = d.share
		}
		waits("j", d.share)
		if rest := d.room - d.reserve - d.held; !at("k", rest) {
			t.Errorf("no room for %d of %d", rest, d.room-d.held)
		} else {
			large["k"] = rest
		}
		waits("l", unit+1)
		for user := range int64(decodingShare) {
			name := string(rune('A' + user))
			for n := range d.reserve / decodingShare / unit {
				if !at(name, unit) {
					t.Fatalf("%s has to wait for small room, number %d", name, n)
				}
			}
			if user < decodingShare-1 {
				waits(name, unit) // one user's part of the reserve
			}
		}
		cancel()
		synctest.Wait()
		for user := range int64(decodingShare) {
			for range d.reserve / decodingShare / unit {
				d.give(string(rune('A'+user)), unit)
			}
		}
		d.give("a", 10*unit)
		for user, cost := range large {
			d.give(user, cost)
		}
		if d.held != 0 || d.large != 0 || len(d.users) != 0 || len(d.waiting) != 0 {
			t.Errorf("left: %d, %d large, %d users, %d waiting", d.held, d.large, len(d.users), len(d.waiting))
		}
	})
}
