package kubelet

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/util/proxy"
)

// asUpstream is a page as upstream's library rewrites it.
func asUpstream(t *testing.T, at *url.URL, host, prefix, body string) string {
	t.Helper()
	by := &proxy.Transport{PathPrepend: prefix, RoundTripper: roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/html"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
	})}
	res, err := by.RoundTrip(&http.Request{URL: at, Host: host, Header: http.Header{}})
	must.OK(t, err)
	b, err := io.ReadAll(res.Body)
	must.OK(t, err)
	return string(b)
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestPages: pages are what upstream's library makes of them, and those with long pieces are whole.
func TestPages(t *testing.T) {
	long := strings.Repeat("x", 3*maxToken)
	var body, encoding string
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		var to io.Writer = w
		switch encoding {
		case "gzip":
			w.Header().Set("Content-Encoding", encoding)
			z := gzip.NewWriter(w)
			defer z.Close()
			to = z
		case "deflate":
			w.Header().Set("Content-Encoding", encoding)
			z, err := flate.NewWriter(w, flate.BestSpeed)
			if err != nil {
				t.Error(err)
			}
			defer z.Close()
			to = z
		}
		_, _ = io.WriteString(to, body)
	}))
	defer pod.Close()
	at, err := url.Parse(pod.URL + "/logs/log")
	must.OK(t, err)
	const prefix, host = "/api/v1/nodes/n/proxy", "front:6443"
	by := rewriting(&http.Transport{DisableCompression: true}, prefix+at.Path, at.Path)
	for _, page := range []struct {
		body  string
		whole bool // it is not rewritten behind its first long piece
	}{
		{`<pre><a href="kubelet.log">kubelet.log</a><a href="/google.log">google.log</a></pre>`, false},
		{`<!doctype html><html><header></header><body background=/b><img src="/a/?b&c" usemap='#x'/><p class="ab">&amp;&lt;</body></html>`, false},
		{`<script src="http://google.com/k.js"/>` + `<script src="` + pod.URL + `/k.js"></script>`, false},
		{`<a href="https://front:6443/x">x</a><a href="/api/v1/nodes/n/proxy/y">y</a><a href="%zz">z</a>`, false},
		{`<script>if (a < b) { "<a href='/x'>" }</script><!-- <a href="/x"> --><textarea><a href="/x"></textarea><a href="/x"`, false},
		{``, false},
		{`<a href="/x">x</a>` + long + `<a href="/x">x</a>`, true},
		{`<a href="/x">x</a><a title="` + long + `" href="/x">x</a><a href="/x">`, true},
		{`<a href="/x">x</a><!--` + long + long, true},
	} {
		want := asUpstream(t, at, host, prefix, page.body)
		if page.whole {
			first := `<a href="/x">`
			want = `<a href="` + prefix + `/x">` + strings.TrimPrefix(page.body, first)
		}
		if strings.HasSuffix(page.body, `href="/x"`) {
			want += `<a href="/x"` // upstream leaves a broken end out
		}
		for _, encoding = range []string{"", "gzip", "deflate"} {
			body = page.body
			res, err := by.RoundTrip(&http.Request{Method: "GET", URL: at, Host: host, Header: http.Header{}})
			must.OK(t, err)
			got, err := io.ReadAll(res.Body)
			if err != nil || string(got) != want || res.Header.Get("Content-Encoding") != "" {
				t.Errorf("%q in %q: %.200q %v, want %.200q", encoding, page.body[:min(100, len(page.body))], got, err, want)
			}
			if err := res.Body.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// endlessPage is a page with no end: the same piece again and again.
type endlessPage struct {
	piece string
	at    int
}

// Read implements io.Reader.
func (e *endlessPage) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = e.piece[e.at%len(e.piece)]
		e.at++
	}
	return len(b), nil
}

// TestEndlessPages: what is held of a page does not grow with it.
func TestEndlessPages(t *testing.T) {
	for _, piece := range []string{`<a href="/a/b/c">`, "x", "<a ", `<p a='`} {
		res := &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(&endlessPage{piece: piece})}
		(&answers{prefix: "/prefix"}).rewrite(&http.Request{URL: &url.URL{Host: "pod"}}, res)
		p := res.Body.(*page)
		if _, err := io.CopyN(io.Discard, p, 4<<20); err != nil {
			t.Errorf("%q: %v", piece, err)
		}
		if held := p.out.Cap(); held > 4*maxToken {
			t.Errorf("%q: %d bytes are held", piece, held)
		}
	}
	// What is small and would be large.
	var small bytes.Buffer
	z := gzip.NewWriter(&small)
	if _, err := io.CopyN(z, &endlessPage{piece: "x"}, 16<<20); err != nil {
		t.Fatal(err)
	}
	must.OK(t, z.Close())
	res := &http.Response{StatusCode: 200, Header: http.Header{"Content-Encoding": {"gzip"}}, Body: io.NopCloser(&small)}
	(&answers{}).rewrite(&http.Request{URL: &url.URL{Host: "pod"}}, res)
	if n, err := io.Copy(io.Discard, res.Body); n != 16<<20 || err != nil || res.Body.(*page).out.Cap() > 4*maxToken {
		t.Errorf("%d %v, and %d bytes are held", n, err, res.Body.(*page).out.Cap())
	}
}
