package differential

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/quorate/quorate/internal/must"
)

// recording is what kube-apiserver answered to the first requests of a seed, with all that they
// are made of: the content of a pool's recorded file.
type recording struct {
	Seed        uint64
	At          time.Time
	Definitions []map[string]any `json:",omitempty"`
	Resources   []*resource
	Samples     []recordedSample
	Bases       []recordedBase
	Bodies      map[string][]map[string]any `json:",omitempty"`
	Answers     []recordedAnswer
}

type recordedSample struct {
	Origin, GVK string
	Object      json.RawMessage
	Fuzzed      bool
	Target      bool `json:",omitempty"`
}

// recordedBase is an object that is stored before: what was posted, and what kube-apiserver made of it.
type recordedBase struct {
	Sample     int
	Collection string
	Path       string
	Posted     json.RawMessage
	Stored     json.RawMessage
	Scale      json.RawMessage `json:",omitempty"`
}

type recordedAnswer struct {
	Request  uint32 // a hash of it: another generator makes other requests
	Code     int
	Warnings []string        `json:",omitempty"`
	Body     json.RawMessage `json:",omitempty"`
}

func hashOf(q *request) uint32 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %s %s %s", q.method, q.path, q.contentType, q.there)
	return h.Sum32()
}

// record writes the answers to the first requests of a seed.
func (w *world) record(ctx context.Context, b both, seed uint64, n int) error {
	r := recording{Seed: seed, At: time.Now().UTC().Truncate(time.Second), Definitions: w.definitions, Bodies: w.bodies}
	for _, res := range w.resources {
		r.Resources = append(r.Resources, res)
	}
	at := map[*sample]int{}
	for i, s := range w.samples {
		at[s] = i
		r.Samples = append(r.Samples, recordedSample{s.origin, s.resource.gvk(), encode(s.obj), s.fuzzed, s.target})
	}
	for _, s := range w.bases {
		base := recordedBase{Sample: at[s.sample], Collection: s.collection, Path: s.path, Posted: encode(s.posted), Stored: encode(s.there)}
		if s.scale != nil {
			base.Scale = encode(s.scale)
		}
		r.Bases = append(r.Bases, base)
	}
	for i := range n {
		q := w.request(seed, uint64(i))
		a, err := b.there.send(ctx, q.method, q.path, q.contentType, q.there)
		if err != nil {
			// kube-apiserver has given up: there is nothing to compare with.
			r.Answers = append(r.Answers, recordedAnswer{Request: hashOf(q)})
			continue
		}
		r.Answers = append(r.Answers, recordedAnswer{hashOf(q), a.code, a.warnings, a.body})
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	e, err := zstd.NewWriter(&out, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(zstd.MaxWindowSize>>2))
	if err != nil {
		return err
	}
	if _, err := e.Write(raw); err != nil {
		return err
	}
	if err := e.Close(); err != nil {
		return err
	}
	return os.WriteFile(w.pool.recorded, out.Bytes(), 0o644)
}

func (p *pool) recording() (*recording, error) {
	f, err := os.Open(p.recorded)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d, err := zstd.NewReader(f)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	raw, err := io.ReadAll(d)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.recorded, err)
	}
	r := &recording{}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return r, decoder.Decode(r)
}

// world is that of a recording, stored in Quorate.
func (r *recording) world(ctx context.Context, p *pool, here *server) (*world, error) {
	w := &world{pool: p, resources: map[string]*resource{}, definitions: r.Definitions, bodies: r.Bodies}
	for _, res := range r.Resources {
		w.resources[res.gvk()] = res
	}
	for _, s := range r.Samples {
		obj, err := decode(s.Object)
		if err != nil {
			return nil, err
		}
		w.samples = append(w.samples, &sample{s.Origin, w.resources[s.GVK], obj, s.Fuzzed, s.Target})
	}
	b := both{there: here, here: here}
	if err := b.define(ctx, w.definitions); err != nil {
		return nil, err
	}
	if err := b.needs(ctx, w.samples); err != nil {
		return nil, err
	}
	for _, base := range r.Bases {
		a, err := here.send(ctx, http.MethodPost, base.Collection, "application/json", base.Posted)
		if err != nil {
			return nil, err
		}
		if a.code >= 300 {
			return nil, fmt.Errorf("POST %s: %d %s\n%s", base.Collection, a.code, a.body, base.Posted)
		}
		s := &stored{sample: w.samples[base.Sample], collection: base.Collection, path: base.Path}
		if s.there, err = decode(base.Stored); err != nil {
			return nil, err
		}
		if base.Scale != nil {
			if s.scale, err = decode(base.Scale); err != nil {
				return nil, err
			}
		}
		if err := s.become(ctx, both{here: here}); err != nil {
			return nil, err
		}
		w.bases = append(w.bases, s)
	}
	for _, s := range w.bases {
		if s.resource.Kind == "CustomResourceDefinition" {
			if err := b.established(ctx, s.path); err != nil {
				return nil, err
			}
		}
		var err error
		if s.here, err = here.get(ctx, s.path); err != nil {
			return nil, err
		}
	}
	w.index()
	return w, nil
}

// TestRecorded holds Quorate's answers against those that kube-apiserver gave to some requests.
// The whole is TestCampaign, which also records: -record 1000.
func TestRecorded(t *testing.T) {
	for _, p := range pools {
		t.Run(p.name, p.testRecorded)
	}
}

func (p *pool) testRecorded(t *testing.T) {
	known, err := readKnown("known.txt")
	must.OK(t, err)
	rec, err := p.recording()
	must.OK(t, err)
	here := startQuorate(t)
	w, err := rec.world(t.Context(), p, here)
	must.OK(t, err)
	open, err := p.readOpen()
	must.OK(t, err)
	r := newReport(known)
	var differs []string
	for i, there := range rec.Answers {
		q := w.request(rec.Seed, uint64(i))
		if hashOf(q) != there.Request {
			t.Fatalf("request %d:%d is another one than was recorded: record again, as doc.go says", rec.Seed, i)
		}
		if there.Code == 0 {
			continue
		}
		q.later = time.Since(rec.At)
		a, err := here.send(t.Context(), q.method, q.path, q.contentType, q.here)
		must.OK(t, err)
		id := fmt.Sprintf("%d:%d", rec.Seed, i)
		o := compare(q, &answer{there.Code, there.Warnings, there.Body}, a)
		before := r.differ()
		r.add(id, o)
		switch d := r.differ() > before; {
		case d && *update:
			differs = append(differs, id)
		case d && !open[id]:
			for category, lines := range o.differ {
				for _, l := range lines {
					t.Errorf("%s %s: %s %s: %s: %c %s", id, q.resource.gvk(), q.verb, describe(q.changes), category, l.sign, l.detail)
				}
			}
		case !d && open[id]:
			t.Errorf("%s does not differ any more: take it out of %s", id, p.open)
		}
	}
	if *update {
		text := "# Requests whose answers differ and should not, yet: go test -run TestRecorded ./test/judges/differential -args -update\n" + strings.Join(differs, "\n") + "\n"
		must.OK(t, os.WriteFile(p.open, []byte(text), 0o644))
	}
	t.Logf("%d answers, of which %d differ and should not", len(rec.Answers), len(open))
}

// readOpen reads which requests have answers that differ and should not, yet.
func (p *pool) readOpen() (map[string]bool, error) {
	raw, err := os.ReadFile(p.open)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	open := map[string]bool{}
	for l := range strings.Lines(string(raw)) {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "#") {
			open[l] = true
		}
	}
	return open, nil
}
