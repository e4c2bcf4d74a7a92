package report

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/quorate/quorate/test/judges/check"
	"github.com/quorate/quorate/test/judges/history"
)

const (
	// MaxOps and maxEvents bound what a page carries.
	MaxOps    = 60_000
	maxEvents = 60_000
)

// data is what the script of a page draws. Times are milliseconds; the others are
// indexes into the lists of names.
type data struct {
	Nodes      []string        `json:"nodes"`
	Kinds      []string        `json:"kinds"` // of faults
	End        float64         `json:"end"`
	Lanes      []lane          `json:"lanes"` // of clients, then of watchers
	Ops        []op            `json:"ops"`
	Watches    []watch         `json:"watches"`
	Faults     []fault         `json:"faults"`
	Leaders    []span          `json:"leaders"`
	Violations []violation     `json:"violations"`
	Omitted    int             `json:"omitted"` // operations that are not drawn
	Thinned    int             `json:"thinned"` // events likewise
	at         map[int]int     `json:"-"`       // operation of the history -> of the page
	lanes      map[laneKey]int `json:"-"`
}

type laneKey struct {
	watch  bool
	client int
}

type lane struct {
	Name  string `json:"name"`
	Watch bool   `json:"watch"`
}

// op classes: what is drawn tall, and in which colour.
type op struct {
	Lane  int     `json:"l"`
	Write bool    `json:"w"`
	Out   string  `json:"o"` // first letter of the outcome
	Call  float64 `json:"c"`
	Ret   float64 `json:"r"` // -1: never
	Text  string  `json:"t"`
}

type watch struct {
	Lane  int     `json:"l"`
	Begin float64 `json:"b"`
	End   float64 `json:"e"`
	Text  string  `json:"t"`
	// Events are time, type and text each.
	Events [][3]any `json:"v"`
}

type fault struct {
	Kind  int     `json:"k"`
	Node  int     `json:"n"` // -1: of no node
	Begin float64 `json:"b"`
	End   float64 `json:"e"`
	Text  string  `json:"t"`
}

type span struct {
	Node  int     `json:"n"`
	Begin float64 `json:"b"`
	End   float64 `json:"e"`
}

type violation struct {
	At    float64   `json:"at"`
	Ops   []int     `json:"ops"`
	Watch int       `json:"watch"`
	Times []float64 `json:"times"` // of its events
}

func millis(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Microsecond)) / 1000
}

func newData(h *history.History, v *check.Verdict) *data {
	d := &data{
		Lanes: []lane{}, Ops: []op{}, Watches: []watch{}, Faults: []fault{}, Violations: []violation{}, // never null
		at: map[int]int{}, lanes: map[laneKey]int{},
	}
	end := lastTime(h)
	d.End = millis(end)
	d.names(h)
	d.assignLanes(h, end)
	concerned := map[int]bool{}
	for _, x := range v.Violations {
		for _, i := range x.Ops {
			concerned[i] = true
		}
	}
	every := 1 + (len(h.Ops)-1)/MaxOps
	for i := range h.Ops {
		if i%every == 0 || concerned[i] {
			d.addOp(h, i)
		}
	}
	d.Omitted = len(h.Ops) - len(d.Ops)
	d.addWatches(h)
	d.addFaults(h, end)
	d.Leaders = leaders(h, d.Nodes)
	for _, x := range v.Violations {
		y := violation{At: millis(x.At), Watch: x.Watch, Ops: []int{}, Times: []float64{}}
		for _, i := range x.Ops {
			if at, ok := d.at[i]; ok {
				y.Ops = append(y.Ops, at)
			}
		}
		if x.Watch >= 0 && x.Watch < len(h.Watches) {
			for _, e := range x.Events {
				y.Times = append(y.Times, millis(h.Watches[x.Watch].Events[e].At))
			}
		}
		d.Violations = append(d.Violations, y)
	}
	return d
}

// lastTime is when the run ended, as far as anybody noticed.
func lastTime(h *history.History) time.Duration {
	end := time.Duration(1)
	for i := range h.Ops {
		end = max(end, h.Ops[i].Call)
		if h.Ops[i].Return != history.Forever {
			end = max(end, h.Ops[i].Return)
		}
	}
	for i := range h.Watches {
		if e := h.Watches[i].End; e != history.Forever {
			end = max(end, e)
		}
	}
	for _, f := range h.Faults {
		end = max(end, f.Begin)
		if f.End != history.Forever {
			end = max(end, f.End)
		}
	}
	return end
}

func (d *data) names(h *history.History) {
	nodes, kinds := map[string]bool{}, map[string]bool{}
	for i := range h.Ops {
		nodes[h.Ops[i].Node] = true
	}
	for i := range h.Watches {
		nodes[h.Watches[i].Node] = true
	}
	for _, f := range h.Faults {
		kinds[f.Kind] = true
		for _, n := range f.Nodes {
			nodes[n] = true
		}
	}
	for _, s := range h.States {
		nodes[s.Node] = true
	}
	delete(nodes, "")
	d.Nodes, d.Kinds = sorted(nodes), sorted(kinds)
}

func sorted(names map[string]bool) []string {
	list := slices.AppendSeq(make([]string, 0, len(names)), maps.Keys(names))
	slices.Sort(list)
	return list
}

func (d *data) addOp(h *history.History, i int) {
	o := &h.Ops[i]
	x := op{Lane: d.lanes[laneKey{false, o.Client}], Write: o.Mode == "" && o.Kind != history.Get && o.Kind != history.List,
		Out: string(o.Outcome[:min(1, len(o.Outcome))]), Call: millis(o.Call), Ret: -1, Text: check.Describe(h, i)}
	if o.Return != history.Forever && o.Outcome != history.Unknown {
		x.Ret = millis(o.Return)
	}
	d.at[i] = len(d.Ops)
	d.Ops = append(d.Ops, x)
}

func (d *data) addWatches(h *history.History) {
	total := 0
	for i := range h.Watches {
		total += len(h.Watches[i].Events)
	}
	every := 1 + max(0, total-1)/maxEvents
	for i := range h.Watches {
		w := &h.Watches[i]
		x := watch{Lane: d.lanes[laneKey{true, w.Client}], Begin: millis(w.Begin), End: millis(min(w.End, lastOf(w))), Text: check.DescribeWatch(h, i), Events: [][3]any{}}
		if w.Ended != "" {
			x.Text += ": " + w.Ended
		}
		for e := range w.Events {
			if e%every != 0 && w.Events[e].Type != history.Error {
				d.Thinned++
				continue
			}
			x.Events = append(x.Events, [3]any{millis(w.Events[e].At), string(w.Events[e].Type[:1]), check.DescribeEvent(h, i, e)})
		}
		d.Watches = append(d.Watches, x)
	}
}

// lastOf is the end of a watch, also of one that was not told its end.
func lastOf(w *history.Watch) time.Duration {
	if w.End != history.Forever && w.End >= w.Begin {
		return w.End
	}
	if n := len(w.Events); n > 0 {
		return w.Events[n-1].At
	}
	return w.Begin
}

func (d *data) addFaults(h *history.History, end time.Duration) {
	for _, f := range h.Faults {
		x := fault{Kind: slices.Index(d.Kinds, f.Kind), Node: -1, Begin: millis(f.Begin), End: millis(min(max(f.End, f.Begin), end)), Text: f.Kind}
		if f.Detail != "" {
			x.Text += ": " + f.Detail
		}
		if len(f.Nodes) == 0 {
			d.Faults = append(d.Faults, x)
		}
		for _, n := range f.Nodes {
			x.Node = slices.Index(d.Nodes, n)
			d.Faults = append(d.Faults, x)
		}
	}
}

// leaders are the stretches in which one node answered as the leader.
func leaders(h *history.History, nodes []string) []span {
	type answer struct {
		at   time.Duration
		node string
	}
	var all []answer
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Role == "leader" && o.Return != history.Forever {
			all = append(all, answer{o.Return, o.Node})
		}
	}
	slices.SortFunc(all, func(a, b answer) int { return int(a.at - b.at) })
	spans := []span{}
	for _, a := range all {
		n := slices.Index(nodes, a.node)
		if last := len(spans) - 1; last >= 0 && spans[last].Node == n {
			spans[last].End = millis(a.at)
			continue
		}
		spans = append(spans, span{n, millis(a.at), millis(a.at)})
	}
	return spans
}
