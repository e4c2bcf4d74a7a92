package sim

import (
	"math/rand/v2"
	"time"

	"github.com/quorate/quorate/raftstore"
)

// rpcTimeout bounds Raft's exchanges: shorter than in production, as a run is.
const rpcTimeout = 2 * time.Second

// profile is how a run differs from others. It follows from the seed.
type profile struct {
	name      string
	voters    int
	nonvoters int
	clients   int
	watchers  int
	// deciders make writes that are decided by rules; the first changes the rules.
	deciders int
	// chargers make objects that use something of which there is a limit.
	chargers  int
	segment   int           // bytes of a segment of the logs
	length    time.Duration // of the faults
	think     time.Duration // mean pause of a client
	watchLife time.Duration // 0.5 to 1.5 of it, then the client cuts a watch
	bookmark  time.Duration

	network time.Duration // one-way delay: 1 to 2 of it
	sync    time.Duration // a disk's sync: up to it
	double  float64       // chance of a Raft message to be sent twice
	timing  raftstore.Timing
	limits  raftstore.Limits
	// slow is how many voters have timers that come late, as those of a process
	// that is stopped now and then.
	slow int
	// lazy is a bit per machine: it takes snapshots seldom.
	lazy uint32
	// pause between faults, on average.
	every  time.Duration
	faults map[string]int // weights of kinds
	// restore ends the run with a backup that becomes a new cluster.
	restore bool
}

// favour is a profile's name and the weights of its faults.
type favour struct {
	name   string
	faults map[string]int
}

// The profiles that seeds go through, by the faults that they favour. A weight of
// a kind that is not named is 1 in "mix" and 0 elsewhere.
var favours = []favour{
	{"mix", nil},
	{"partition", map[string]int{"isolate": 4, "split": 3, "bridge": 2, "one-way": 3, "flap": 2, "minority": 3, "delay": 1, "kill": 1, "compact": 1}},
	{"crash", map[string]int{"kill": 4, "power": 4, "kill-all": 3, "restart": 1, "io-error": 2, "slow-disk": 2, "compact": 1}},
	{"pause", map[string]int{"pause": 3, "starve": 4, "slow-disk": 2, "transfer": 2, "isolate": 2, "kill": 1, "compact": 1}},
	{"mix", nil},
	{"disk", map[string]int{"slow-disk": 4, "hung-disk": 1, "io-error": 3, "disk-full": 2, "kill": 2, "isolate": 1, "compact": 1}},
	{"members", map[string]int{"member": 6, "kill": 2, "isolate": 2, "transfer": 2, "pause": 1, "compact": 1}},
	{"deposed", map[string]int{"depose": 8, "minority": 1, "pause": 1, "compact": 1}},
	{"lossy", map[string]int{"lossy": 4, "delay": 3, "flap": 2, "transfer": 1, "kill": 1, "compact": 2}},
	{"restore", map[string]int{"kill": 2, "isolate": 2, "compact": 2, "transfer": 1}},
	{"moved", map[string]int{"inherit": 4, "undialled": 3, "lost-log": 2, "kill": 1, "power": 1, "compact": 1}},
	{"behind", map[string]int{"behind": 8, "kill": 1, "transfer": 1, "compact": 1}},
	{"put-back", map[string]int{"old-directory": 1}},
	{"put-back", map[string]int{"old-directory": 4, "kill": 1, "power": 1, "isolate": 1, "transfer": 2, "slow-disk": 1, "delay": 1}},
}

func newProfile(seed uint64, rng *rand.Rand) profile {
	f := favours[seed%uint64(len(favours))]
	ms := func(from, to int) time.Duration { return time.Duration(from+rng.IntN(to-from+1)) * time.Millisecond }
	p := profile{
		name: f.name, faults: f.faults, restore: f.name == "restore",
		voters: 3, nonvoters: rng.IntN(2), clients: 6 + rng.IntN(5), watchers: 4 + rng.IntN(4),
		length: ms(5000, 9000), think: ms(80, 250), watchLife: ms(500, 3000), bookmark: ms(300, 1000),
		network: ms(1, 8) / 4, sync: ms(1, 6), every: ms(400, 1500),
	}
	if rng.IntN(4) == 0 {
		p.voters = 5
	}
	if rng.IntN(2) == 0 {
		p.double = 0.05
	}
	timeout := ms(250, 500)
	p.timing = raftstore.Timing{
		Heartbeat: timeout, Election: timeout, Lease: timeout * 3 / 4,
		NoLeader: 2 * time.Second, History: 5 * time.Minute,
		SnapshotInterval: ms(500, 2000), HungDisk: 3 * time.Second,
	}
	if rng.IntN(2) == 0 {
		p.timing.History = ms(2000, 5000)
	}
	p.limits = raftstore.Limits{TrailingLogs: 10_000, SnapshotThreshold: uint64(10 + rng.IntN(40))}
	if rng.IntN(2) == 0 {
		p.limits.TrailingLogs = uint64(5 + rng.IntN(60))
	}
	if p.limits.SnapshotThreshold%2 == 0 {
		// Nothing of the log is kept for a node that is sent a snapshot: it may need
		// another one at once, and behind that others.
		p.limits.SnapshotLogBytes = 1
	}
	if rng.IntN(4) == 0 {
		p.limits.HistoryBytes = 20 << 10
	}
	if f.name == "put-back" {
		p.length = ms(9000, 14000) // which the story takes
	}
	if f.name == "deposed" {
		// A leader that nobody writes to while it is cut off, so that its log has no
		// entries of its own.
		p.think, p.length = ms(400, 1200), ms(9000, 14000)
	}
	if provokes := f.name == "deposed" || f.name == "moved" || f.name == "behind"; !provokes {
		// There, what logs hold is chosen with care.
		p.deciders, p.chargers = 3, 2
	}
	if f.name == "deposed" || f.name == "pause" || f.name == "mix" && rng.IntN(3) == 0 {
		p.slow = 1
	}
	if f.name == "behind" {
		behindProfile(&p, rng)
	}
	// Drawn last: the same seed without it would be another run.
	p.segment = 1 << (12 + rng.IntN(5))
	return p
}

// timingOf is a machine's timing. A slow one believes in its leadership for long
// after the others have elected another. The last machine wins the first election.
func (p *profile) timingOf(i int) raftstore.Timing {
	t := p.timing
	if i >= p.voters-p.slow {
		t.Heartbeat, t.Election, t.Lease = 20*t.Heartbeat, 20*t.Election, 20*t.Lease
	}
	if p.lazy>>i&1 == 1 {
		t.SnapshotInterval *= 16
	}
	return t
}
