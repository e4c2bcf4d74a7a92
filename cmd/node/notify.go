package main

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/quorate/quorate/raftstore"
)

// notifier speaks to systemd; without it (no NOTIFY_SOCKET) it says nothing.
//
// READY means that the listeners are up and the local state is loaded, not that
// there is a quorum: a node that waits for one must not be restarted for it.
type notifier struct{}

func (notifier) send(state string) { _, _ = daemon.SdNotify(false, state) }

// loading keeps systemd's start timeout away while the state is read.
func (n notifier) loading() { n.send("EXTEND_TIMEOUT_USEC=300000000\nSTATUS=loading the state") }

func (n notifier) ready()    { n.send(daemon.SdNotifyReady) }
func (n notifier) stopping() { n.send(daemon.SdNotifyStopping + "\nSTATUS=stopping") }

// follow tells the status on every change, and feeds the watchdog as long as the
// disk and the state machine move. It ends with ctx.
func (n notifier) follow(ctx context.Context, s *raftstore.Store) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		watchdog = 0
	}
	var last string
	for {
		st := s.Status()
		text := fmt.Sprintf("STATUS=%s term %d, applied %d/%d, leader %s, %d members", st.Role, st.Term, st.Applied, st.Commit, orNone(st.LeaderId), len(st.Members))
		if text != last {
			n.send(text)
			last = text
		}
		// A leader's log write that hangs, or a state machine that does not follow
		// the commits, stops the feed; idleness does not.
		if watchdog > 0 && s.Alive(watchdog/2) {
			n.send(daemon.SdNotifyWatchdog)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
