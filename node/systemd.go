package node

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/quorate/quorate/proto"
)

// notifier speaks to systemd; without it (no NOTIFY_SOCKET) it says nothing.
//
// READY means that the listeners are up and the local state is loaded, not that
// there is a quorum: a node that waits for one must not be restarted for it.
type notifier struct {
	// silent: the process is not the node's alone.
	silent bool
}

func (n notifier) send(state string) {
	if !n.silent {
		_, _ = daemon.SdNotify(false, state)
	}
}

// loading keeps systemd's start timeout away while the state is read.
func (n notifier) loading() { n.send("EXTEND_TIMEOUT_USEC=300000000\nSTATUS=loading the state") }

func (n notifier) ready()    { n.send(daemon.SdNotifyReady) }
func (n notifier) stopping() { n.send(daemon.SdNotifyStopping + "\nSTATUS=stopping") }

// follow tells the status on every change, and feeds the watchdog as long as the
// state machine moves. It ends with ctx, at once where nobody listens.
func (n notifier) follow(ctx context.Context, status func(context.Context) *proto.NodeStatus, alive func(time.Duration) bool) {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return
	}
	every := time.Second
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		watchdog = 0
	}
	if watchdog > 0 {
		every = min(every, watchdog/3)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last string
	for {
		if text := statusLine(status(ctx)); text != last {
			n.send("STATUS=" + text)
			last = text
		}
		// A state machine that does not follow the commits stops the feed; idleness
		// does not. (A log write that hangs ends the process by itself.)
		if watchdog > 0 && alive(watchdog/2) {
			n.send(daemon.SdNotifyWatchdog)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// statusLine is what systemctl status shows of a node.
func statusLine(st *proto.NodeStatus) string {
	leader := st.LeaderName
	if leader == "" {
		leader = st.LeaderId
	}
	if leader == "" {
		leader = "none"
	}
	voters := 0
	for _, m := range st.Members {
		if m.Voter {
			voters++
		}
	}
	return fmt.Sprintf("%s term %d, applied %d/%d, leader %s, %d members, %d of them voters",
		st.Role, st.Term, st.Applied, st.Commit, leader, len(st.Members), voters)
}
