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
		ask("i", 5) // behind it
		next("")
		d.give("b", 10)
		synctest.Wait() // 80 - 60 are left for both
		if both := <-got + <-got; both != "hi" && both != "ih" {
			t.Errorf("%s, want h and i", both)
		}
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
		for user, cost := range map[string]int64{"a": 1, "c": 10, "d": 10, "e": 10, "f": 10, "g": 10, "h": 11, "i": 5} {
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
