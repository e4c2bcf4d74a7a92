//go:build linux && amd64

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/quorate/quorate/test/judges/wire"
)

// status is what `quorate status -o json` prints, as far as it is needed here.
type status struct {
	Quorum   bool     `json:"quorum"`
	Leader   string   `json:"leader"` // id
	Diverged []string `json:"diverged"`
	Members  []struct {
		ID          string `json:"id"`
		Name        string `json:"name"`
		Role        string `json:"role"`
		Voter       bool   `json:"voter"`
		Applied     uint64 `json:"applied"`
		Floor       uint64 `json:"floor"`
		StateHash   string `json:"stateHash"`
		StateHashAt uint64 `json:"stateHashAt"`
		Error       string `json:"error"`
	} `json:"members"`
}

// Status asks a node for the cluster's status.
func (n *Node) Status(ctx context.Context) (s status, err error) {
	err = n.getJSON(ctx, "/quorate/v1/status", &s)
	return s, err
}

func (n *Node) getJSON(ctx context.Context, path string, into any) error {
	k := newClient(n.c)
	defer k.close()
	a, err := k.call(ctx, n, wire.Request{Method: http.MethodGet, Path: path})
	if err != nil {
		return err
	}
	if a.Code != http.StatusOK {
		return fmt.Errorf("%s: GET %s: %d: %.300s", n.Name, path, a.Code, a.Body)
	}
	return json.Unmarshal(a.Body, into)
}

// AwaitReady waits until the node answers /readyz, and fails at once when its
// process is gone.
func (n *Node) AwaitReady(ctx context.Context, within time.Duration) error {
	k := newClient(n.c)
	defer k.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return await(ctx, within, n.Name+" is ready", func() error {
		if !n.Alive() {
			cancel()
			return errors.New("its process is gone: " + n.lastWords())
		}
		a, err := k.call(ctx, n, wire.Request{Method: http.MethodGet, Path: "/readyz"})
		if err == nil && a.Code != http.StatusOK {
			err = fmt.Errorf("%d: %.300s", a.Code, a.Body)
		}
		return err
	})
}

// lastWords is the end of the node's log.
func (n *Node) lastWords() string {
	log := n.Log(0)
	return log[max(0, len(log)-1500):]
}

// leader returns the node that leads, as any of the given nodes knows it.
func (r *run) leader(ctx context.Context, ask ...*Node) (*Node, error) {
	if len(ask) == 0 {
		ask = r.targets()
	}
	var found *Node
	err := await(ctx, 20*time.Second, "a leader", func() error {
		var last error
		for _, n := range ask {
			short, cancel := context.WithTimeout(ctx, callWithin)
			s, err := n.Status(short)
			cancel()
			if err != nil {
				last = err
				continue
			}
			for _, m := range s.Members {
				if m.Role == "leader" && m.ID == s.Leader && m.Error == "" {
					if found = r.node(m.Name); found != nil {
						return nil
					}
				}
			}
			last = fmt.Errorf("%s knows none", n.Name)
		}
		return last
	})
	return found, err
}

// followers returns the voters but the leader.
func (r *run) followers(leader *Node) []*Node {
	var out []*Node
	for _, n := range r.targets() {
		if n != leader && !n.nonvoter {
			out = append(out, n)
		}
	}
	return out
}
