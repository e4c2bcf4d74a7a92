//go:build linux && amd64

package chaos

import (
	"fmt"
	"time"
)

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
	{
		Name: "partition", About: "the leader alone, a minority, a bridge, one-way cuts, flapping links",
		Shape:  Shape{Voters: 3, Network: true, Settings: with(quick, long)},
		Length: 40 * time.Second, Nemesis: partitions,
		Must: []string{"packets cut"},
	},
	{
		Name: "bad links", About: "delay of 75±50 ms, loss of up to half, duplicates, disorder",
		Shape:  Shape{Voters: 3, Network: true, Settings: with(quick, long)},
		Length: 25 * time.Second, Nemesis: badLinks,
		Must: []string{"packets lost", "packets duplicated", "packets reordered", "packets delayed"},
	},
	{
		Name: "losing side", About: "the leader and a non-voter cut off: they serve nothing fresh",
		Shape:  Shape{Voters: 3, Nonvoters: 1, Network: true, Settings: with(quick, long)},
		Length: 20 * time.Second, Nemesis: losingSide,
		Must: []string{"fresh reads refused without quorum", "any reads served without quorum"},
	},
	{
		Name: "blackhole", About: "a follower cut off until only a snapshot helps",
		Shape:  Shape{Voters: 3, Network: true, Settings: with(quick, long, "--snapshot-interval=500ms", "--snapshot-entries=100", "--trailing-logs=100")},
		Mix:    Mix{Writes: 0.8, Think: 5 * time.Millisecond},
		Length: 30 * time.Second, Nemesis: blackhole,
		Must: []string{"snapshots installed"},
	},
	{
		Name: "stale", About: "readers of Most Recent pinned to each node while the leader is stopped for up to 5 s",
		Shape:  Shape{Voters: 3, Settings: with(quick, long)},
		Mix:    Mix{Clients: 9, Watchers: 2, Keys: 4, Think: 5 * time.Millisecond, MostRecent: true, Pinned: true},
		Length: 35 * time.Second, Nemesis: stalePauses,
	},
	{
		Name: "floor", About: "watches and exact reads while the history is cut all the time and nodes come and go",
		Shape:  Shape{Voters: 3, Settings: with(quick, "--history-retention=2s", "--history-max-bytes=300000")},
		Mix:    Mix{Watchers: 14, Think: 8 * time.Millisecond, Writes: 0.7, Back: 4000, WatchLife: 2 * time.Second},
		Length: 40 * time.Second, Nemesis: mixture,
		Must:         []string{"floors above the first revision"},
		ShortHistory: true,
	},
	{
		Name: "power", About: "current lost by one node and by all, before and after syncs, with torn writes",
		Shape:  Shape{Voters: 3, Disks: true, Settings: with(quick, long, "--snapshot-interval=1s", "--snapshot-entries=200", "--trailing-logs=300")},
		Mix:    Mix{Writes: 0.8},
		Length: 40 * time.Second, Nemesis: powerCuts,
		Must: []string{"unsynced sectors lost"},
	},
	{
		Name: "slow disk", About: "syncs that take 0.2 to 5 s, on the leader, then on a follower",
		Shape:  Shape{Voters: 3, Disks: true, Settings: []string{long}},
		Length: 30 * time.Second, Nemesis: slowDisks,
		Must: []string{"syncs slow"},
	},
	{
		Name: "broken disk", About: "syncs that hang or fail, and no room",
		Shape:  Shape{Voters: 3, Disks: true, Settings: with(quick, long, fmt.Sprintf("--hung-disk-timeout=%s", diskWatchdog))},
		Mix:    Mix{Writes: 0.8, Padding: 4000},
		Length: 40 * time.Second, Nemesis: brokenDisks,
		Must: []string{"syncs hung", "syncs failed", "writes without room", "processes that ended themselves"},
	},
	{
		Name: "full disks", About: "no room on one, two and three disks",
		Shape:  Shape{Voters: 3, Disks: true, Settings: with(quick, long)},
		Mix:    Mix{Writes: 0.8, Padding: 4000},
		Length: 40 * time.Second, Nemesis: fullDisks,
		Must: []string{"writes without room", "disks that were filled"},
	},
	{
		Name: "damage", About: "torn, flipped and deleted files of one node, an old copy put back, replacement",
		Shape:  Shape{Voters: 3, Settings: with(quick, long, "--promote-after=500ms", "--snapshot-interval=1s", "--snapshot-entries=50", "--trailing-logs=200")},
		Length: 60 * time.Second, Nemesis: damaged,
		Must: []string{"nodes replaced"},
	},
	{
		Name: "clock", About: "wall clocks that jump by up to an hour and strobe",
		Shape:  Shape{Voters: 3, Clocks: true, Settings: with(quick, long)},
		Length: 25 * time.Second, Nemesis: clocks,
	},
	{
		Name: "members", About: "from three nodes to five and back, a wiped node that joins again, under pauses and cuts",
		Shape:  Shape{Voters: 3, Network: true, Settings: with(quick, long, "--promote-after=500ms")},
		Length: 40 * time.Second, Nemesis: members,
		Must: []string{"members added", "members removed", "nodes replaced"},
	},
}
