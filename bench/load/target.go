package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/bench/client"
)

// Target is what is measured. Nodes without a process cost nobody knows what.
type Target struct {
	client.Cluster
	// Etcd: the nodes are members of etcd. They know keys and nothing else.
	Etcd bool
}

// etcdVerbs are what can be done with plain keys.
var etcdVerbs = []verb{create, get, get0, list, list0, page, update}

// check refuses what the target cannot do. All rows are those that it can.
func (t *Target) check(chosen []row, all bool) ([]row, error) {
	if !t.Etcd {
		return chosen, nil
	}
	var can []row
	for _, r := range chosen {
		impossible := slices.DeleteFunc(r.verbs(), func(v verb) bool { return slices.Contains(etcdVerbs, v) })
		switch {
		case len(impossible) == 0:
			can = append(can, r)
		case !all:
			if r.mix != nil {
				return nil, fmt.Errorf("mix: etcd has no %s of plain keys: it has %s", impossible[0], strings.Join(texts(etcdVerbs), ", "))
			}
			return nil, fmt.Errorf("rows: etcd has no %s of plain keys: it has %s", r.name, strings.Join(texts(etcdVerbs), ", "))
		}
	}
	return can, nil
}

// connect opens n connections, the servers taking turns.
func (t *Target) connect(ctx context.Context, n int) ([]*client.Conn, error) {
	servers := t.Servers()
	if len(servers) == 0 {
		return nil, errors.New("connect: no node has an API")
	}
	var conns []*client.Conn
	for i := range n {
		node := servers[i%len(servers)]
		one, err := t.Dial(ctx, node)
		if err != nil {
			return nil, errors.Join(err, client.CloseAll(conns))
		}
		conns = append(conns, one)
	}
	return conns, nil
}
