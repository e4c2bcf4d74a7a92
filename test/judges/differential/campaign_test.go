package differential

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

var (
	campaign = flag.Bool("campaign", false, "compare with a real kube-apiserver ('make peers')")
	ofPool   = flag.String("pool", manifests.name, "objects and ways of `NAME`: manifests or installed; each has requests of its own")
	seeds    = flag.String("seeds", "1", "`SEED,...`, each of which makes other requests")
	requests = flag.Int("requests", 30000, "requests of each seed")
	workers  = flag.Int("workers", 4, "requests at once")
	most     = flag.Int("most", 80, "forms of a difference that are printed")
	one      = flag.String("one", "", "print the request `SEED:INDEX` and both answers, and send no other")
	record   = flag.Int("record", 0, "write the answers of kube-apiserver to the first `N` requests of seed 1, for TestRecorded, and send no other")
	update   = flag.Bool("update", false, "write which recorded answers differ today")
	reportTo = flag.String("report", "", "`FILE` for the report (default: standard output)")
	reviewed = flag.Bool("reviews", true, "compare what webhooks are asked, too")
	complete = flag.Bool("complete", false, "fail also if a line of known.txt explains nothing")
)

// TestCampaign sends requests to both, and prints where they differ.
func TestCampaign(t *testing.T) {
	if !*campaign {
		t.Skip("it needs a kube-apiserver: make judge-differential")
	}
	known, err := readKnown("known.txt")
	must.OK(t, err)
	p, err := poolOf(*ofPool)
	must.OK(t, err)
	b := startBoth(t)
	w, err := prepare(t.Context(), b, p, t.Logf)
	must.OK(t, err)
	if *record == 0 && *reviewed {
		b.reviewers = newReviewers(t, b)
	}
	if *one != "" {
		show(t, b, w)
		return
	}
	if *record > 0 {
		must.OK(t, w.record(t.Context(), b, 1, *record))
		return
	}
	r := newReport(known)
	for i := range w.unlike {
		r.count(&w.unlike[i])
	}
	for seed := range strings.SplitSeq(*seeds, ",") {
		var n uint64
		if _, err := fmt.Sscan(seed, &n); err != nil {
			t.Fatalf("-seeds %s: %v", *seeds, err)
		}
		run(t, b, w, r, n)
	}
	to := io.Writer(os.Stdout)
	if *reportTo != "" {
		f, err := os.Create(*reportTo)
		must.OK(t, err)
		defer f.Close()
		to = f
	}
	r.print(to, *most)
	if n := r.differ(); n > 0 {
		t.Errorf("%d answers differ without a reason", n)
	}
	for _, k := range known {
		if *complete && !k.used {
			t.Errorf("known.txt: nothing differs by %q any more", k.text)
		}
	}
}

// run sends the requests of a seed.
func run(t *testing.T, b both, w *world, r *report, seed uint64) {
	t.Helper()
	begin := time.Now()
	var next atomic.Int64
	var wait sync.WaitGroup
	for range *workers {
		wait.Go(func() {
			for i := next.Add(1) - 1; i < int64(*requests) && t.Context().Err() == nil; i = next.Add(1) - 1 {
				q := w.request(seed, uint64(i))
				r.add(q.id, b.judge(t.Context(), q))
			}
		})
	}
	wait.Wait()
	took := time.Since(begin).Seconds()
	t.Logf("seed %d: %d requests in %.0f s, %.0f a second to each", seed, *requests, took, float64(*requests)/took)
}

// judge sends a request to both and compares the answers.
func (b both) judge(ctx context.Context, q *request) *outcome {
	there, here, err := b.send(ctx, q)
	if err != nil {
		return &outcome{q: q, differ: map[string][]line{noAnswer: {{'+', err.Error()}}}}
	}
	return b.compare(q, there, here)
}

// compare holds against each other what was answered, and what webhooks were asked.
func (b both) compare(q *request, there, here *answer) *outcome {
	o := compare(q, there, here)
	if b.reviewers != nil {
		b.reviewers.compare(b, q, o)
	}
	return o
}

// show prints one request and its answers.
func show(t *testing.T, b both, w *world) {
	t.Helper()
	for id := range strings.SplitSeq(*one, ",") {
		var seed, index uint64
		if _, err := fmt.Sscanf(id, "%d:%d", &seed, &index); err != nil {
			t.Fatalf("-one %s: %v", id, err)
		}
		q := w.request(seed, index)
		fmt.Printf("\n=== %s: %s\n%s %s %s\n%s\n%s\n", id, q.origin, q.method, q.path, q.contentType, describe(q.changes), q.there)
		there, here, err := b.send(t.Context(), q)
		must.OK(t, err)
		fmt.Printf("--- kube-apiserver: %d %v\n%s\n--- Quorate: %d %v\n%s\n--- differences\n", there.code, there.warnings, there.body, here.code, here.warnings, here.body)
		for category, lines := range b.compare(q, there, here).differ {
			for _, l := range lines {
				fmt.Printf("%s: %c %s\n", category, l.sign, l.detail)
			}
		}
	}
}
