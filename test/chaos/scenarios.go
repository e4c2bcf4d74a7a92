//go:build linux && amd64

package chaos

import "time"

// quick are timeouts that make more elections in the same time. They still exceed
// the worst stall of the disks of a busy machine.
var quick = []string{"--heartbeat-timeout=1s", "--election-timeout=1s", "--leader-lease-timeout=500ms"}

// long keeps everything that happens in a run in the history.
const long = "--history-retention=9m"

func with(base []string, more ...string) []string {
	return append(append([]string{}, base...), more...)
}

// Scenarios is the campaign.
var Scenarios = []Scenario{
	{
		Name: "kill", About: "kill -9 of the leader, of any node, of all nodes",
		Shape:  Shape{Voters: 3, Settings: with(quick, long)},
		Length: 30 * time.Second, Nemesis: kills,
	},
	{
		Name: "pause", About: "SIGSTOP for 0.1 to 10 s, the leader first, then SIGCONT",
		Shape:  Shape{Voters: 3, Settings: with(quick, long)},
		Length: 30 * time.Second, Nemesis: stops,
	},
	{
		Name: "restart", About: "SIGTERM and start, leadership handed over by command",
		Shape:  Shape{Voters: 3, Settings: with(quick, long)},
		Length: 25 * time.Second, Nemesis: restarts,
	},
}
