package churn

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/internal/must"
)

// server is an API server that knows ConfigMaps, and answers the requests for which refuse returns a code with that.
type server struct {
	mu      sync.Mutex
	objects map[string]string
	methods map[string]int
	refuse  func(method string) int
	cleaned int // how often all were to be deleted
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/configmaps") && r.Method == http.MethodDelete {
		// As a server whose history is over before all are deleted.
		if s.cleaned++; s.cleaned < 3 {
			w.WriteHeader(http.StatusGone)
		}
		return
	}
	if !strings.Contains(r.URL.Path, "/configmaps") || r.URL.Path == "/metrics" {
		fmt.Fprintln(w, "quorate_stored_bytes 1.5e+03")
		return
	}
	var sent struct{ Metadata struct{ Name string } }
	_ = json.Unmarshal(body, &sent)
	name := path.Base(r.URL.Path)
	s.methods[r.Method]++
	_, there := s.objects[name]
	code := s.refuse(r.Method)
	switch {
	case code != 0:
	case r.Method == http.MethodPost:
		s.objects[sent.Metadata.Name] = string(body)
	case !there:
		code = http.StatusNotFound
	case r.Method == http.MethodPut:
		s.objects[name] = string(body)
	default:
		delete(s.objects, name)
	}
	if code != 0 {
		w.WriteHeader(code)
	}
	fmt.Fprintf(w, "%s", body)
}

// TestChurn runs on a server of the test: the report has as many writes, objects and bytes as the server, also when it refuses some.
func TestChurn(t *testing.T) {
	n := 0
	every := func(code, each int, method string) func(string) int {
		return func(m string) int {
			if n++; n%each == 0 && (method == "" || method == m) {
				return code
			}
			return 0
		}
	}
	for name, c := range map[string]struct {
		refuse func(string) int
		failed bool
	}{
		"all is served":            {func(string) int { return 0 }, false},
		"some must come again":     {every(429, 7, ""), false},
		"some updates fail":        {every(500, 7, http.MethodPut), true},
		"some creates are refused": {every(507, 5, http.MethodPost), true},
	} {
		t.Run(name, func(t *testing.T) {
			n = 0
			s := &server{objects: map[string]string{}, methods: map[string]int{}, refuse: c.refuse}
			h := httptest.NewUnstartedServer(s)
			h.EnableHTTP2 = true
			h.StartTLS()
			defer h.Close()
			roots := x509.NewCertPool()
			roots.AddCert(h.Certificate())
			target := client.Cluster{Nodes: []client.Node{{Name: "n1", API: h.URL, PID: os.Getpid()}}, TLS: &tls.Config{RootCAs: roots}, Dir: t.TempDir()}
			must.OK(t, os.Mkdir(filepath.Join(target.Dir, "n1"), 0o700))
			o := DefaultOptions()
			o.Writes, o.Objects, o.Clients, o.Rest, o.Every = 500, 33, 4, 0, 100*time.Millisecond
			r, err := Run(t.Context(), target, o, io.Discard)
			must.OK(t, err)
			last := r.Samples[len(r.Samples)-1]
			if s.cleaned != 3 {
				t.Errorf("asked to delete all %d times", s.cleaned)
			}
			if r.Written+r.Failures != o.Writes || r.Failed() != c.failed || r.Stopped || last.StoredBytes != 1500 || last.Nodes[0].Resident == 0 {
				t.Errorf("%+v", r)
			}
			var bytes int64
			for _, object := range s.objects {
				bytes += int64(len(object))
			}
			// A client forgets what it could not update.
			if !c.failed && (last.Objects != int64(len(s.objects)) || last.LiveBytes != bytes) || last.Objects > int64(len(s.objects)) || last.LiveBytes > bytes {
				t.Errorf("the report has %d objects of %d bytes, the server %d of %d", last.Objects, last.LiveBytes, len(s.objects), bytes)
			}
			if (r.Again > 0) != (name == "some must come again") {
				t.Errorf("%d answers asked to come again", r.Again)
			}
		})
	}
}

// TestPlan: what a client does is what the options say, and the same each time.
func TestPlan(t *testing.T) {
	const target, writes = 100, 100_000
	once := func() (counts map[string]int, sizes [3]int, least, most int) {
		p := plan{random: rand.New(rand.NewPCG(1, 2)), target: target, smallest: 100, largest: 100_000}
		counts, least = map[string]int{}, target
		live := 0
		for i := range target + writes {
			m := p.next(live)
			switch m {
			case http.MethodPost:
				live++
			case http.MethodDelete:
				live--
			}
			if i < target {
				if m != http.MethodPost {
					t.Fatalf("%s before there are as many as are wanted", m)
				}
				continue
			}
			counts[m]++
			least, most = min(least, live), max(most, live)
			switch n := p.size(); {
			case n < 100 || n > 100_000:
				t.Fatalf("a size of %d", n)
			case n < 1000:
				sizes[0]++
			case n < 10_000:
				sizes[1]++
			default:
				sizes[2]++
			}
		}
		return counts, sizes, least, most
	}
	counts, sizes, least, most := once()
	for method, share := range map[string]float64{http.MethodPost: 0.3, http.MethodPut: 0.4, http.MethodDelete: 0.3} {
		if got := float64(counts[method]) / writes; got < share-0.01 || got > share+0.01 {
			t.Errorf("%s: %.3f of the writes, want %.1f", method, got, share)
		}
	}
	for i, n := range sizes {
		if share := float64(n) / writes; share < 0.32 || share > 0.35 {
			t.Errorf("power of ten %d: %.3f of the sizes, want a third", i, share)
		}
	}
	if least < target*9/10 || most > target*11/10 {
		t.Errorf("%d to %d live", least, most)
	}
	if again, _, _, _ := once(); fmt.Sprint(again) != fmt.Sprint(counts) {
		t.Errorf("%v, and then %v", counts, again)
	}
}

// TestFilesOf: each file is counted once, where it belongs, with the room that it has and not with its length.
func TestFilesOf(t *testing.T) {
	dir := t.TempDir()
	for name, written := range map[string]int{"state.db": 1, "state.db.new": 2, "raft-log/0001.log": 4, "raft-log/1.spare": 8, "raft.db": 16, "pki/api.key": 32} {
		file := filepath.Join(dir, name)
		must.OK(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must.OK(t, os.WriteFile(file, []byte(strings.Repeat("x", written<<20)), 0o600))
		if err := os.Truncate(file, 1<<30); err != nil { // a hole behind it
			t.Fatal(err)
		}
	}
	f, err := filesOf(dir)
	must.OK(t, err)
	for name, c := range map[string][2]int64{"state": {f.State, 3}, "log": {f.Log, 4}, "spare": {f.Spare, 8}, "rest": {f.Rest, 48}, "sum": {f.Sum(), 63}} {
		if c[0] < c[1]<<20 || c[0] >= (c[1]+1)<<20 {
			t.Errorf("%s: %d bytes, want %d MiB", name, c[0], c[1])
		}
	}
	if _, err := filesOf(filepath.Join(dir, "none")); err == nil {
		t.Error("no error for a directory that is not there")
	}
}

// TestReport: the table has the most of each third, and the drawing a curve for each column of it.
func TestReport(t *testing.T) {
	r := Report{WriteSeconds: 30, Written: 900}
	for i := range 8 { // at 0 to 35 s; two nodes
		s := Sample{Seconds: float64(5 * i), Writes: int64(100 * i), LiveBytes: 3 << 20}
		for n := range 2 {
			s.Nodes = append(s.Nodes, NodeSample{Name: fmt.Sprint("n", n+1), Files: Files{State: int64(10*i+n) << 20, Log: 1 << 20}, Resident: 7 << 20})
		}
		r.add(s)
	}
	var table, csv, svg strings.Builder
	must.OK(t, r.Doc().WriteTable(&table))
	for _, want := range []string{"30/s", "third, at most   12.0      11.0", "second third   32.0      31.0", "last third   62.0      61.0", "in the end   72.0      71.0", "24.00 bytes for each"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, &table)
		}
	}
	must.OK(t, r.WriteCSV(&csv))
	if lines := strings.Split(strings.TrimSpace(csv.String()), "\n"); len(lines) != 17 || !strings.HasPrefix(lines[16], "35.0,700,0,3145728,0,n2,74448896,1048576,0,0,7340032") {
		t.Errorf("%d lines:\n%s", len(lines), &csv)
	}
	must.OK(t, r.WriteSVG(&svg))
	for _, x := range series {
		if !strings.Contains(svg.String(), ">"+x.name+"</text>") || strings.Count(svg.String(), `class="curve fine `+x.class+`"`) != 1 {
			t.Errorf("the drawing has no curve %s", x.name)
		}
	}
}

// TestValidate: what cannot be measured is refused by the flag's name.
func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"":           func(*Options) {},
		"--writes":   func(o *Options) { o.Writes = 0 },
		"--objects":  func(o *Options) { o.Objects = o.Clients - 1 },
		"--duration": func(o *Options) { o.Duration = -1 },
		"--clients":  func(o *Options) { o.Clients = 0 },
		"--smallest": func(o *Options) { o.Smallest = o.Largest + 1 },
		"--largest":  func(o *Options) { o.Largest = 1<<20 + 1 },
		"--every":    func(o *Options) { o.Every = 0 },
		"--rest":     func(o *Options) { o.Rest = -1 },
		"--timeout":  func(o *Options) { o.Timeout = 0 },
	} {
		o := DefaultOptions()
		change(&o)
		if err := o.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
