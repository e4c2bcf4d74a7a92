package modes

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/probe"
)

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   string // "" if it is good
	}{
		{"defaults", func(*Options) {}, ""},
		{"half load needs no rate", func(o *Options) { o.Loads, o.Rate = []float64{0.5}, 0 }, ""},
		{"too short", func(o *Options) { o.Duration = time.Millisecond }, "duration 1ms"},
		{"for ever", func(o *Options) { o.Duration = 2 * time.Hour }, "duration 2h"},
		{"no rate", func(o *Options) { o.Rate = 0 }, "rate 0"},
		{"not a rate", func(o *Options) { o.Rate = math.NaN() }, "rate NaN"},
		{"full load", func(o *Options) { o.Loads = []float64{0.1, 1} }, "load 1"},
		{"no writes", func(o *Options) { o.Writes = 0 }, "writes 0"},
		{"more writers than objects", func(o *Options) { o.Writes, o.Objects = 1000, 10 }, "objects 10: must be 40"},
		{"too many objects", func(o *Options) { o.Objects = 1e6 }, "objects 1000000"},
		{"no value", func(o *Options) { o.Size = 0 }, "size 0"},
		{"a list that no list can be", func(o *Options) { o.Objects, o.Size = 10000, 500<<10 }, "a list would have more"},
		{"no modes", func(o *Options) { o.Modes = nil }, "no modes"},
		{"another mode", func(o *Options) { o.Modes = []probe.Mode{"latest"} }, `there is no mode "latest"`},
		{"no nodes", func(o *Options) { o.Nodes = nil }, "no nodes"},
		{"two mistakes", func(o *Options) { o.Size, o.Rate = 0, -1 }, "rate -1: must be 1 to 100000 reads per second and cell\nsize 0"},
	} {
		o := DefaultOptions()
		c.change(&o)
		switch err := o.Validate(); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q in it", c.name, err, c.want)
		}
	}
}

func TestParseLoads(t *testing.T) {
	for text, want := range map[string]string{"": "[]", "half": "[0.5]", "0.25": "[0.25]", "0.1,half,0.9": "[0.1 0.5 0.9]", "0": "", "1": "", "-0.5": "", "NaN": "", "quarter": "", "0.5,": ""} {
		got, err := ParseLoads(text)
		if (err != nil) != (want == "") || err == nil && fmt.Sprint(got) != want {
			t.Errorf("%q: %v, %v, want %s", text, got, err, want)
		}
	}
}

func TestChoose(t *testing.T) {
	all := []target{{client.Node{Name: "n1"}, client.Follower}, {client.Node{Name: "n2"}, client.Leader}, {client.Node{Name: "n3"}, client.Follower}}
	for _, c := range []struct{ wanted, want, missing, err string }{
		{"leader,follower", "n2 n1", "", ""},
		{"n3,n1,leader", "n2 n3 n1", "", ""},
		{"follower,n1", "n1", "", ""},
		{"leader,nonvoter", "n2", "nonvoter", ""},
		{"nonvoter", "", "", "no node is nonvoter"},
		{"n4", "", "", `no node or role "n4"`},
		{"servers: leader,follower,nonvoter", "a0 a1", "", ""},
		{"servers: a1", "a1", "", ""},
		{"servers: a1,leader", "a1", "leader", ""},
		{"servers: n1", "", "", `no node or role "n1"`},
	} {
		all := all
		wanted, servers := strings.CutPrefix(c.wanted, "servers: ")
		if servers {
			all = []target{{client.Node{Name: "a0"}, client.Server}, {client.Node{Name: "a1"}, client.Server}}
		}
		chosen, missing, err := choose(all, strings.Split(wanted, ","))
		var names []string
		for _, n := range chosen {
			names = append(names, n.Name)
		}
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.wanted, err, c.err)
			}
			continue
		}
		if got := strings.Join(names, " "); err != nil || got != c.want || join(missing) != c.missing {
			t.Errorf("%s: %s, missing %s, %v", c.wanted, got, join(missing), err)
		}
	}
}

// TestGivesUp: a cluster that breaks ends the run with its error.
func TestGivesUp(t *testing.T) {
	r := &run{}
	r.ctx, r.giveUp = context.WithCancelCause(t.Context())
	for range maxErrors - 1 {
		r.failed(io.ErrUnexpectedEOF)
		r.failed(nil)
	}
	if r.ctx.Err() != nil {
		t.Fatal("given up too early")
	}
	r.failed(http.ErrServerClosed)
	if err := context.Cause(r.ctx); err == nil || !strings.Contains(err.Error(), "given up after 50 errors, the last: "+http.ErrServerClosed.Error()) {
		t.Errorf("cause %v", err)
	}
}
