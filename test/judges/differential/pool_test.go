package differential

import (
	"context"
	"fmt"
	"strings"
)

// pool is a set of objects and of ways to write them. A seed and an index make other requests in
// each.
type pool struct {
	name string
	ways []way
	// subresources says that there are also writes of scales, and POSTs below objects.
	subresources bool
	read         func(ctx context.Context, b both, w *world) ([]*sample, error)
	recorded     string // the answers that TestRecorded compares with
	open         string // which of those differ and should not, yet
}

// manifests are the objects of Kubernetes itself.
var manifests = &pool{
	name: "manifests",
	ways: []way{{"create", 44}, {"update", 16}, {"json-patch", 6}, {"merge-patch", 6}, {"strategic-patch", 6}, {"apply", 8}, {"subresource", 14}},
	read: func(ctx context.Context, b both, w *world) (read []*sample, err error) {
		if w.resources, err = b.common(ctx); err != nil {
			return nil, err
		}
		return readSamples(w.resources)
	},
	recorded: "testdata/recorded.json.zst", open: "testdata/open.txt",
}

// installed are the objects of what people install in clusters, and writes of subresources whose
// body is another kind than the object.
var installed = &pool{
	name:         "installed",
	ways:         []way{{"create", 22}, {"update", 10}, {"json-patch", 4}, {"merge-patch", 4}, {"strategic-patch", 4}, {"apply", 6}, {"subresource", 6}, {"scale", 20}, {"post", 24}},
	subresources: true,
	read:         readInstalled,
	recorded:     "testdata/installed.json.zst", open: "testdata/installed-open.txt",
}

var pools = []*pool{manifests, installed}

func poolOf(name string) (*pool, error) {
	var names []string
	for _, p := range pools {
		if p.name == name {
			return p, nil
		}
		names = append(names, p.name)
	}
	return nil, fmt.Errorf("-pool %s: want one of %s", name, strings.Join(names, ", "))
}
