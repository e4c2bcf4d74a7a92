package sim

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/test/judges/history"
)

// nemesis does faults to a cluster, one after the other and at the same time,
// until its time is up. It follows from the seed what is done when; to whom, in
// part also from who leads then.
type nemesis struct {
	c     *cluster
	rng   *rand.Rand
	tasks sync.WaitGroup
	stop  <-chan struct{}
	spare int // machines added so far
	lost  int // logs taken away
	old   int // directories put back
	// writers are the clients of bursts.
	writers []*client
}

// fault is one kind: it chooses its victims and returns how to end it, and for
// the record whom it hit and how. A nil end means that it was over at once.
type fault func(n *nemesis) (nodes []string, detail string, end func())

// faults are all kinds. Those with restart end processes.
var faults = map[string]fault{
	"kill":          func(n *nemesis) ([]string, string, func()) { return n.kill(n.some(), false) },
	"power":         func(n *nemesis) ([]string, string, func()) { return n.kill(n.some(), true) },
	"kill-all":      func(n *nemesis) ([]string, string, func()) { return n.kill(n.c.members(), n.rng.IntN(2) == 0) },
	"restart":       (*nemesis).restart,
	"pause":         (*nemesis).pause,
	"isolate":       (*nemesis).isolate,
	"split":         (*nemesis).split,
	"minority":      (*nemesis).minority,
	"depose":        (*nemesis).depose,
	"bridge":        (*nemesis).bridge,
	"one-way":       (*nemesis).oneWay,
	"flap":          (*nemesis).flap,
	"delay":         (*nemesis).delay,
	"lossy":         (*nemesis).lossy,
	"starve":        (*nemesis).starve,
	"slow-disk":     (*nemesis).slowDisk,
	"hung-disk":     (*nemesis).hungDisk,
	"io-error":      (*nemesis).ioError,
	"disk-full":     (*nemesis).diskFull,
	"no-room":       (*nemesis).noRoom,
	"transfer":      (*nemesis).transfer,
	"undialled":     (*nemesis).undialled,
	"behind":        (*nemesis).behind,
	"lost-log":      (*nemesis).lostLog,
	"old-directory": (*nemesis).oldDirectory,
	"inherit":       (*nemesis).inherit,
	"member":        (*nemesis).member,
	"compact":       (*nemesis).compact,
}

var kindsOfFaults = slices.Sorted(maps.Keys(faults))

// stories are the kinds that need a profile of their own.
var stories = map[string]bool{"behind": true, "lost-log": true, "inherit": true, "old-directory": true}

// restarts are the kinds that end processes.
var restarts = map[string]bool{"kill": true, "power": true, "kill-all": true, "restart": true, "inherit": true, "lost-log": true, "old-directory": true}

func (n *nemesis) run() {
	defer n.tasks.Wait()
	for {
		pause := time.Duration(n.rng.ExpFloat64() * float64(n.c.profile.every))
		timer := time.NewTimer(pause)
		select {
		case <-n.stop:
			timer.Stop()
			return
		case <-timer.C:
		}
		n.one(n.pick())
	}
}

// pick chooses a kind by the profile's weights.
func (n *nemesis) pick() string {
	weight := func(kind string) int {
		if n.c.profile.faults == nil {
			if stories[kind] {
				return 0
			}
			return 1
		}
		return n.c.profile.faults[kind]
	}
	sum := 0
	for _, k := range kindsOfFaults {
		sum += weight(k)
	}
	at := n.rng.IntN(sum)
	for _, k := range kindsOfFaults {
		if at -= weight(k); at < 0 {
			return k
		}
	}
	return kindsOfFaults[0]
}

// one begins a fault, and ends it after a while in the background.
func (n *nemesis) one(kind string) {
	begin := n.c.now()
	lasts := 100*time.Millisecond + time.Duration(n.rng.ExpFloat64()*float64(time.Second))
	lasts = min(lasts, 5*time.Second)
	nodes, detail, end := faults[kind](n)
	if len(nodes) == 0 {
		return
	}
	n.tasks.Go(func() {
		if end != nil {
			timer := time.NewTimer(lasts)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-n.stop:
			}
			end()
		}
		n.c.mu.Lock()
		defer n.c.mu.Unlock()
		n.c.faults = append(n.c.faults, history.Fault{
			Kind: kind, Nodes: nodes, Begin: begin, End: n.c.now(), Detail: detail, Restart: restarts[kind],
		})
	})
}

// victim is the leader half of the time, else anybody who runs.
func (n *nemesis) victim() *seat {
	if n.rng.IntN(2) == 0 {
		if l := n.c.leader(); l != nil {
			return l.seat
		}
	}
	return n.c.anySeat(n.rng)
}

// some are one to all machines: mostly one.
func (n *nemesis) some() []*seat {
	out := []*seat{n.victim()}
	for n.rng.IntN(3) == 0 {
		if s := n.c.anySeat(n.rng); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func namesOf(seats []*seat) []string {
	out := make([]string, len(seats))
	for i, s := range seats {
		out[i] = s.name
	}
	return out
}

func (n *nemesis) kill(victims []*seat, machine bool) ([]string, string, func()) {
	var hit []*seat
	for _, s := range victims {
		s.mu.Lock()
		s.down++
		current := s.current
		s.mu.Unlock()
		if current != nil {
			current.crash(machine, false)
		}
		hit = append(hit, s)
	}
	return namesOf(hit), "", func() { n.up(hit) }
}

// up lets machines start again that were kept down.
func (n *nemesis) up(seats []*seat) {
	for _, s := range seats {
		s.mu.Lock()
		s.down = max(s.down-1, 0)
		s.mu.Unlock()
		n.c.tasks.Go(s.restart)
	}
}

// restart ends processes in good order and starts them again, one after the other
// or all at once.
func (n *nemesis) restart() ([]string, string, func()) {
	victims := n.some()
	detail := "some"
	if n.rng.IntN(3) == 0 {
		victims, detail = n.c.members(), "all"
	}
	handOver := n.rng.IntN(2) == 0
	for _, s := range victims {
		s.mu.Lock()
		s.down++
		current := s.current
		s.mu.Unlock()
		if current != nil {
			n.tasks.Go(func() {
				<-current.opened
				current.quit(handOver && current.store != nil)
			})
		}
	}
	return namesOf(victims), detail, func() { n.up(victims) }
}

func (n *nemesis) pause() ([]string, string, func()) {
	var hosts []*host
	var victims []*seat
	for _, s := range n.some() {
		if r := s.running(); r != nil {
			r.host.pause(true)
			hosts, victims = append(hosts, r.host), append(victims, s)
		}
	}
	return namesOf(victims), "", func() {
		for _, h := range hosts {
			h.pause(false)
		}
	}
}

// starve leaves processes too little processor: for 0.1 to 3 s nothing of them runs, then for a moment all does; or each
// message and each sync of theirs is late by as much, while others are not.
func (n *nemesis) starve() ([]string, string, func()) {
	victims := n.some()
	if n.rng.IntN(2) == 0 {
		late := 100*time.Millisecond + time.Duration(n.rng.Int64N(int64(time.Second)))
		nodes, end := n.drives(victims, func(d *drive) { d.slow = late }, func(d *drive) { d.slow = 0 })
		ends := []func(){end}
		for _, v := range victims {
			ends = append(ends, n.links(v, func(l *link) { l.delay, l.jitter = 100*time.Millisecond, 2900*time.Millisecond }))
		}
		return nodes, "messages and syncs are late", func() {
			for _, end := range ends {
				end()
			}
		}
	}
	var hit []*seat
	ctx, cancel := context.WithCancel(context.Background())
	for _, s := range victims {
		r := s.running()
		if r == nil {
			continue
		}
		hit = append(hit, s)
		rng := rand.New(rand.NewPCG(n.rng.Uint64(), 0))
		n.tasks.Go(func() {
			for ctx.Err() == nil {
				r.host.pause(true)
				_ = sleep(ctx, 100*time.Millisecond+time.Duration(rng.Int64N(int64(2900*time.Millisecond))))
				r.host.pause(false)
				_ = sleep(ctx, time.Millisecond+time.Duration(rng.Int64N(int64(50*time.Millisecond))))
			}
		})
	}
	return namesOf(hit), "stops and goes", cancel
}

// cut cuts links and returns how to heal them.
func (n *nemesis) cut(pairs [][2]string) func() {
	return n.cutAs(pairs, n.rng.IntN(2) == 0)
}

func (n *nemesis) cutAs(pairs [][2]string, reject bool) func() {
	for _, p := range pairs {
		n.c.net.setCut(p[0], p[1], true, reject)
	}
	return func() {
		for _, p := range pairs {
			n.c.net.setCut(p[0], p[1], false, false)
		}
	}
}

// between are the links between two sides, both ways.
func between(a, b []*seat) (out [][2]string) {
	for _, x := range a {
		for _, y := range b {
			if x != y {
				out = append(out, [2]string{x.name, y.name}, [2]string{y.name, x.name})
			}
		}
	}
	return out
}

func without(all []*seat, some ...*seat) (out []*seat) {
	for _, s := range all {
		if !slices.Contains(some, s) {
			out = append(out, s)
		}
	}
	return out
}

func (n *nemesis) isolate() ([]string, string, func()) {
	v := n.victim()
	return []string{v.name}, "", n.cut(between([]*seat{v}, n.c.members()))
}

// split divides the machines at random.
func (n *nemesis) split() ([]string, string, func()) {
	all := n.c.members()
	n.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	at := 1 + n.rng.IntN(len(all)/2)
	return namesOf(all[:at]), fmt.Sprint("from ", namesOf(all[at:])), n.cut(between(all[:at], all[at:]))
}

// minority puts the leader and the non-voters on one side.
func (n *nemesis) minority() ([]string, string, func()) {
	l := n.c.leader()
	if l == nil {
		return nil, "", nil
	}
	side := []*seat{l.seat}
	for _, s := range n.c.members() {
		if s.name[0] == 'x' {
			side = append(side, s)
		}
	}
	return namesOf(side), "the leader and non-voters", n.cut(between(side, without(n.c.members(), side...)))
}

// depose makes a machine with slow timers the leader and cuts it off, alone or with
// the non-voters: it goes on to believe in itself while the others elect another.
func (n *nemesis) depose() ([]string, string, func()) {
	p := &n.c.profile
	side := []*seat{n.victim()}
	if p.slow > 0 {
		slow := n.c.all()[p.voters-1]
		side[0] = slow
		for range 20 {
			l := n.c.leader()
			if l != nil && l.seat == slow {
				break
			}
			if l != nil {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				_ = l.store.TransferLeadership(ctx, proto.NodeID(slow.name))
				cancel()
			}
			time.Sleep(50 * time.Millisecond)
		}
		// It has time to commit everything, and the others to learn of that.
		time.Sleep(time.Duration(n.rng.Int64N(int64(200 * time.Millisecond))))
	}
	if n.rng.IntN(2) == 0 {
		for _, s := range n.c.members() {
			if s.name[0] == 'x' {
				side = append(side, s)
			}
		}
	}
	others := without(n.c.members(), side...)
	if n.rng.IntN(2) == 0 {
		return namesOf(side), "", n.cut(between(side, others))
	}
	return namesOf(side), "drained, then heartbeats first", n.heartbeatsFirst(side[0], between(side, others))
}

// heartbeatsFirst cuts links of a leader while no client uses it, and when they
// heal lets heartbeats through for a while before entries: the deposed leader's
// log has nothing of its own, and clients come back before the new leader's entries.
func (n *nemesis) heartbeatsFirst(leader *seat, pairs [][2]string) func() {
	leader.drain(true)
	n.c.net.setNarrow(leader.name, n.c.members(), true)
	heal := n.cut(pairs)
	narrow := time.Duration(n.rng.Int64N(int64(2 * time.Second)))
	return func() {
		heal()
		leader.drain(false)
		timer := time.NewTimer(narrow)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-n.stop:
		}
		n.c.net.setNarrow(leader.name, n.c.members(), false)
	}
}

// bridge leaves two halves that only one machine reaches both of.
func (n *nemesis) bridge() ([]string, string, func()) {
	all := n.c.members()
	n.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if len(all) < 3 {
		return nil, "", nil
	}
	rest := all[1:]
	half := len(rest) / 2
	return []string{all[0].name}, "bridge", n.cut(between(rest[:half], rest[half:]))
}

func (n *nemesis) oneWay() ([]string, string, func()) {
	v := n.victim()
	var pairs [][2]string
	out := n.rng.IntN(2) == 0
	for _, s := range n.c.members() {
		switch {
		case s == v || n.rng.IntN(4) == 0:
		case out:
			pairs = append(pairs, [2]string{v.name, s.name})
		default:
			pairs = append(pairs, [2]string{s.name, v.name})
		}
	}
	return []string{v.name}, map[bool]string{true: "sends nothing", false: "receives nothing"}[out], n.cut(pairs)
}

// undialled lets nobody open new connections to a machine, or some not. It dials the
// others as before; what is open goes on, or is broken once.
func (n *nemesis) undialled() ([]string, string, func()) {
	v := n.victim()
	ways := []error{errDropped, os.NewSyscallError("connect", syscall.EHOSTUNREACH), os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	way, broken := ways[n.rng.IntN(len(ways))], n.rng.IntN(3) > 0
	var from []string
	for _, s := range n.c.members() {
		if s != v && n.rng.IntN(5) > 0 {
			from = append(from, s.name)
		}
	}
	n.c.net.setUndialled(from, v.name, way, broken)
	return []string{v.name}, fmt.Sprintf("from %v: %v, open connections broken: %v", from, way, broken),
		func() { n.c.net.setUndialled(from, v.name, nil, false) }
}

// flap cuts and heals the links of one machine in quick succession.
func (n *nemesis) flap() ([]string, string, func()) {
	v := n.victim()
	pairs := between([]*seat{v}, n.c.members())
	pause := 30*time.Millisecond + time.Duration(n.rng.Int64N(int64(300*time.Millisecond)))
	reject := n.rng.IntN(2) == 0
	ctx, cancel := context.WithCancel(context.Background())
	n.tasks.Go(func() {
		for ctx.Err() == nil {
			heal := n.cutAs(pairs, reject)
			_ = sleep(ctx, pause)
			heal()
			_ = sleep(ctx, pause)
		}
	})
	return []string{v.name}, pause.String(), cancel
}

// links changes the links of one machine, for a time.
func (n *nemesis) links(v *seat, f func(*link)) func() {
	var names [][2]string
	for _, p := range between([]*seat{v}, n.c.members()) {
		if n.rng.IntN(3) > 0 {
			names = append(names, p)
		}
	}
	apply := func(f func(*link)) {
		n.c.net.change(func(at func(string, string) *link) {
			for _, p := range names {
				f(at(p[0], p[1]))
			}
		})
	}
	apply(f)
	return func() {
		apply(func(l *link) { l.delay, l.jitter, l.stall, l.breaks = 0, 0, 0, 0 })
	}
}

func (n *nemesis) delay() ([]string, string, func()) {
	v := n.victim()
	d := 5*time.Millisecond + time.Duration(n.rng.Int64N(int64(70*time.Millisecond)))
	return []string{v.name}, d.String(), n.links(v, func(l *link) { l.delay, l.jitter = d, d })
}

func (n *nemesis) lossy() ([]string, string, func()) {
	v := n.victim()
	stall, breaks := n.rng.Float64()/5, n.rng.Float64()/20
	return []string{v.name}, fmt.Sprintf("%.2f lost, %.2f broken", stall, breaks),
		n.links(v, func(l *link) { l.stall, l.breaks = stall, breaks })
}

// drives changes the disks of some processes, for a time.
func (n *nemesis) drives(victims []*seat, f, undo func(*drive)) ([]string, func()) {
	var hit []*seat
	var drives []*drive
	for _, s := range victims {
		s.mu.Lock()
		if s.current != nil {
			hit, drives = append(hit, s), append(drives, s.current.disk)
		}
		s.mu.Unlock()
	}
	for _, d := range drives {
		d.set(f)
	}
	return namesOf(hit), func() {
		for _, d := range drives {
			d.set(undo)
		}
	}
}

func (n *nemesis) slowDisk() ([]string, string, func()) {
	slow := 5*time.Millisecond + time.Duration(n.rng.Int64N(int64(200*time.Millisecond)))
	nodes, end := n.drives(n.some(), func(d *drive) { d.slow = slow }, func(d *drive) { d.slow = 0 })
	return nodes, slow.String(), end
}

// hungDisk is a write that takes longer than the store waits.
func (n *nemesis) hungDisk() ([]string, string, func()) {
	nodes, end := n.drives([]*seat{n.victim()}, func(d *drive) { d.slow = 20 * time.Second }, func(d *drive) { d.slow = 0 })
	return nodes, "", end
}

func (n *nemesis) ioError() ([]string, string, func()) {
	nodes, _ := n.drives([]*seat{n.victim()}, func(d *drive) { d.fail, d.once = errIO, true }, nil)
	return nodes, "the next sync", nil
}

func (n *nemesis) diskFull() ([]string, string, func()) {
	nodes, end := n.drives([]*seat{n.victim()}, func(d *drive) { d.fail, d.once = errFull, false }, func(d *drive) { d.fail = nil })
	return nodes, "", end
}

// noRoom is a disk that another program fills and empties in turns: what finds no room is not begun, and the process goes on.
func (n *nemesis) noRoom() ([]string, string, func()) {
	nodes, end := n.drives(n.some(), func(d *drive) { d.full = true }, func(d *drive) { d.full = false })
	return nodes, "", end
}

func (n *nemesis) transfer() ([]string, string, func()) {
	l := n.c.leader()
	if l == nil {
		return nil, "", nil
	}
	to := proto.NodeID("")
	if s := n.c.anySeat(n.rng); n.rng.IntN(2) == 0 && s.name != l.name {
		to = proto.NodeID(s.name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	n.tasks.Go(func() {
		defer cancel()
		_ = l.store.TransferLeadership(ctx, to)
	})
	return []string{l.name}, "to " + string(to), cancel
}

// compact moves the floor to near the newest revision.
func (n *nemesis) compact() ([]string, string, func()) {
	s := n.c.anySeat(n.rng)
	r := s.running()
	if r == nil {
		return nil, "", nil
	}
	at := r.store.Applied()
	back := proto.Revision(n.rng.IntN(150))
	if at <= back {
		return nil, "", nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	n.tasks.Go(func() {
		defer cancel()
		_ = r.store.Compact(ctx, at-back)
	})
	return []string{s.name}, fmt.Sprint("to ", at-back), nil
}
