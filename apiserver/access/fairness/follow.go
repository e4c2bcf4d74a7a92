package fairness

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
	v1 "k8s.io/api/flowcontrol/v1"
)

// Tables are where FlowSchemas and PriorityLevelConfigurations are stored.
var Tables = [2]string{"flowschemas." + v1.GroupName, "prioritylevelconfigurations." + v1.GroupName}

// Configuration is what the stored objects say, in the order of their names; not to be
// changed. Those that cannot be read are left out.
type Configuration struct {
	Schemas []*v1.FlowSchema
	Levels  []*v1.PriorityLevelConfiguration
}

// View is the configuration that this node's state shows.
type View = view.View[*Configuration]

// NewView returns the view of a store's configuration. Nothing runs in it; log is told of
// objects that cannot be read.
func NewView(store view.Store, log *slog.Logger) *View {
	return view.New(store, Tables[:], func(now view.Reading, _ *Configuration) (*Configuration, error) {
		next := &Configuration{}
		var err error
		if next.Schemas, err = decoded[v1.FlowSchema](now, 0, log); err != nil {
			return nil, err
		}
		next.Levels, err = decoded[v1.PriorityLevelConfiguration](now, 1, log)
		return next, err
	})
}

// decoded are the objects of a table. All of them are read again when one has changed:
// there are a few dozen. Errors: mvcc.ErrCompacted.
func decoded[T any](now view.Reading, table int, log *slog.Logger) ([]*T, error) {
	t := now.Tables[table]
	if t == nil {
		return nil, nil
	}
	page, err := t.Range(mvcc.Query{At: now.At})
	if err != nil {
		return nil, err
	}
	var out []*T
	for _, v := range page.Versions {
		obj := new(T)
		if err := json.Unmarshal(v.Value(), obj); err != nil {
			resource, _, _ := strings.Cut(t.Name(), ".")
			log.Warn("an object of flow control cannot be read", "resource", resource, "name", v.Key, "err", err)
			continue
		}
		out = append(out, obj)
	}
	return out, nil
}

// digestDelay lets several changes be one.
const digestDelay = 50 * time.Millisecond

// Follow keeps the configuration in force what the stored objects say, until ctx ends.
// Every node runs it. watch returns a channel that is sent to when a table may have
// changed, and a function that ends it.
func (c *Controller) Follow(ctx context.Context, stored *View, watch func(table string) (<-chan struct{}, func(), error)) error {
	var changed [len(Tables)]<-chan struct{}
	for i, table := range Tables {
		wake, stop, err := watch(table)
		if err != nil {
			return fmt.Errorf("follow flow control: %w", err)
		}
		defer stop()
		changed[i] = wake
	}
	for {
		now := stored.Get()
		c.Digest(now.Schemas, now.Levels)
		select {
		case <-ctx.Done():
			return nil
		case <-changed[0]:
		case <-changed[1]:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(digestDelay):
		}
	}
}
