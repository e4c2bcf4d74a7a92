package burst

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
)

// retries is how often a client tries again what is refused with 429, as client-go does.
const retries = 10

// patcher is a client of the burst.
type patcher struct {
	burst  *Burst
	link   *client.Link
	kind   kind
	header http.Header
	number int
	object string
}

// newPatcher is a client with a number of its own, of which every third is at the same of three nodes. Clients share an
// object only if there are more of them than objects, and then they are at different nodes, and conflict in the log.
func newPatcher(b *Burst, number int, link *client.Link) *patcher {
	object := (number + number/b.opt.Objects) % b.opt.Objects
	k := kinds[b.opt.Patches[number%len(b.opt.Patches)]]
	return &patcher{burst: b, link: link, kind: k, header: k.header(), number: number, object: objectName(object)}
}

// run sends patches until ctx ends, and waits for the answer to the last one.
func (p *patcher) run(ctx context.Context) {
	var answer bytes.Buffer
	for i := int64(1); ctx.Err() == nil; i++ {
		value := fmt.Sprintf("%d-%d", p.number, i)
		began := time.Now()
		err := p.send(ctx, p.kind.body(p.object, value, i), &answer)
		if err == nil {
			err = p.burst.acknowledged(p.object, value, answer.Bytes(), time.Since(began))
			if err != nil {
				p.burst.noteAs("strange", err)
			}
		}
		var refusal *client.Refusal
		if err != nil && !errors.As(err, &refusal) {
			measure.Pause(ctx, 100*time.Millisecond) // the node is gone, perhaps for a while
		}
	}
}

// send sends a patch, and again for as long as the server asks for that. An answer is waited for also when ctx has
// ended: whether the patch was lost is what is measured.
func (p *patcher) send(ctx context.Context, body []byte, answer *bytes.Buffer) error {
	r := client.Request{Method: http.MethodPatch, Path: p.burst.deployments() + "/" + p.object, Query: p.kind.query, Header: p.header, Body: body}
	for try := 0; ; try++ {
		err := func() error {
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.burst.opt.Timeout)
			defer cancel()
			_, err := p.link.Do(within, r, answer)
			return err
		}()
		p.burst.note(err)
		var refusal *client.Refusal
		if !errors.As(err, &refusal) || refusal.Code != http.StatusTooManyRequests || ctx.Err() != nil {
			return err
		}
		if try == retries {
			p.burst.noteAs("given up", err)
			return err
		}
		measure.Pause(ctx, refusal.RetryAfter)
	}
}

// note counts an answer.
func (b *Burst) note(err error) {
	var refusal *client.Refusal
	switch {
	case err == nil:
		b.noteAs("200", nil)
	case errors.As(err, &refusal):
		b.noteAs(strconv.Itoa(refusal.Code), err)
	default:
		b.noteAs("none", err)
	}
}

func (b *Burst) noteAs(what string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers[what]++
	if err != nil && b.firsts[what] == "" {
		b.firsts[what] = err.Error()
	}
}

// kind is a kind of patch.
type kind struct {
	contentType, query string
	// body sets the annotation of a Deployment to a value.
	body func(object, value string, number int64) []byte
}

// All clients are one manager, as one tool is, and set one annotation.
const (
	manager    = "fieldManager=burst"
	annotation = "burst"
)

var kinds = map[string]kind{
	"apply": {"application/apply-patch+yaml", "force=true&" + manager, func(object, value string, number int64) []byte {
		return deployment(object, value, number)
	}},
	"json": {"application/json-patch+json", manager, func(_, value string, number int64) []byte {
		return fmt.Appendf(nil, `[{"op":"add","path":"/metadata/annotations/%s","value":%q},{"op":"replace","path":"/spec/minReadySeconds","value":%d}]`, annotation, value, number%100)
	}},
	"strategic": {"application/strategic-merge-patch+json", manager, func(_, value string, number int64) []byte {
		return fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":"N","value":"%d"}]}]}}}}`, annotation, value, number)
	}},
	"merge": {"application/merge-patch+json", manager, func(_, value string, number int64) []byte {
		return fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},"spec":{"minReadySeconds":%d}}`, annotation, value, number%100)
	}},
}

// PatchKinds are the names of the kinds of patches.
func PatchKinds() []string { return slices.Sorted(maps.Keys(kinds)) }

func (k kind) header() http.Header {
	return http.Header{"Accept": {"application/json"}, "Content-Type": {k.contentType}}
}

// deployment is a Deployment as charts have them, without replicas: nothing runs.
func deployment(name, value string, number int64) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%[1]q,"labels":{"app":%[1]q,"tier":"backend","part-of":"burst"},"annotations":{"burst":%[2]q}},`+
		`"spec":{"replicas":0,"minReadySeconds":%[3]d,"selector":{"matchLabels":{"app":%[1]q}},"template":{"metadata":{"labels":{"app":%[1]q,"tier":"backend"}},"spec":{`+
		`"containers":[{"name":"main","image":"registry.example/main:1","ports":[{"containerPort":8080,"name":"http"},{"containerPort":9090,"name":"metrics"}],`+
		`"env":[{"name":"N","value":"%[4]d"},{"name":"LOG","value":"info"},{"name":"POD","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],`+
		`"resources":{"requests":{"cpu":"10m","memory":"32Mi"},"limits":{"memory":"64Mi"}},"readinessProbe":{"httpGet":{"path":"/ready","port":"http"},"periodSeconds":10},`+
		`"volumeMounts":[{"name":"config","mountPath":"/etc/main"}]},{"name":"side","image":"registry.example/side:1","args":["--listen=:9091"]}],`+
		`"volumes":[{"name":"config","configMap":{"name":"main"}}]}}}}`, name, value, number%100, number)
}
