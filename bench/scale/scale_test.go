package scale

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// TestFills: what is replaced in copies has the same length, and no two copies have the same key
// or address.
func TestFills(t *testing.T) {
	hook := newConverter()
	defer hook.close()
	for _, p := range points {
		most := 1.0
		if p.Most > 0 {
			most = p.Most
		}
		// A million takes long and shows no more.
		for _, f := range p.fills(min(300_000, int(float64(p.Full)*most)), hook) {
			if f.n == 0 {
				continue
			}
			keys := map[string]bool{}
			for i := range f.n {
				key := f.key
				for _, text := range f.texts {
					with := f.with(i, text)
					if len(with) != len(text) {
						t.Fatalf("%s: copy %d of %s: %q for %q", p.Name, i, f.table, with, text)
					}
					key = strings.ReplaceAll(key, text, with)
				}
				if keys[key] || key == f.key {
					t.Fatalf("%s: copy %d of %s: key %s again", p.Name, i, f.table, key)
				}
				keys[key] = true
			}
			for _, text := range f.texts {
				if f.body != "" && !strings.Contains(f.body, text) && !strings.Contains(f.collection, text) {
					t.Errorf("%s: %s: %q is nowhere in what is copied", p.Name, f.table, text)
				}
			}
		}
	}
	all := netip.MustParsePrefix(serviceRange)
	for i := range 150_000 * 2 / podsPerService {
		if a := serviceAddress(i); a == serviceTemplate || !all.Contains(netip.MustParseAddr(a)) {
			t.Fatalf("address %d is %s", i, a)
		}
	}
}

// TestEventsExpire: as many Events expire in each part of the hour to come.
func TestEventsExpire(t *testing.T) {
	const n = 7200
	before := time.Now().Unix()
	fills := eventFills(n, nil)
	expires := fills[len(fills)-1].fields[expiresField]
	for _, c := range []struct{ i, in int }{{0, 0}, {n / 2, 1800}, {n - 1, 3599}} {
		var at int64
		if _, err := fmt.Sscan(expires(c.i), &at); err != nil || at < before+int64(c.in) || at > time.Now().Unix()+int64(c.in)+1 {
			t.Errorf("Event %d expires in %d s, want %d: %v", c.i, at-before, c.in, err)
		}
	}
}

// TestConverter: the webhook converts there and back, takes its time, and counts.
func TestConverter(t *testing.T) {
	hook := newConverter()
	defer hook.close()
	const in = `{"apiVersion":"scale.quorate.example/v1","kind":"Route","metadata":{"name":"a"},"spec":{"host":"h","port":80,"value":"x"}}`
	ask := func(object, version string) string {
		t.Helper()
		body := fmt.Sprintf(`{"request":{"uid":"u1","desiredAPIVersion":"scale.quorate.example/%s","objects":[%s,%[2]s]}}`, version, object)
		resp, err := hook.server.Client().Post(hook.server.URL, "application/json", strings.NewReader(body))
		must.OK(t, err)
		defer resp.Body.Close()
		var answer struct {
			Response struct {
				UID              string
				Result           struct{ Status string }
				ConvertedObjects []json.RawMessage
			}
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Response.UID != "u1" || answer.Response.Result.Status != "Success" || len(answer.Response.ConvertedObjects) != 2 {
			t.Fatalf("%+v: %v", answer, err)
		}
		return string(answer.Response.ConvertedObjects[1])
	}
	before := hook.asked()
	began := time.Now()
	there := ask(in, otherRoute)
	if took := time.Since(began); took < conversionTakes {
		t.Errorf("it took %s", took)
	}
	if want := `"spec":{"hostPort":"h:80","value":"x"}`; !strings.Contains(there, want) || !strings.Contains(there, `"apiVersion":"scale.quorate.example/v2"`) {
		t.Errorf("v2: %s", there)
	}
	if back := ask(there, storedRoute); back != in {
		t.Errorf("back: %s, was %s", back, in)
	}
	figures := hook.since(before, 4)
	if len(figures) != 4 || figures[0].Value != 2 || figures[1].Value != 0.5 || figures[2].Value != 2 || figures[3].Value < 5 {
		t.Errorf("figures: %v", figures)
	}
	if figures := hook.since(hook.asked(), 1); figures != nil {
		t.Errorf("figures of nothing: %v", figures)
	}
	resp, err := hook.server.Client().Post(hook.server.URL, "application/json", strings.NewReader(`{"request":{"desiredAPIVersion":"x","objects":[{"spec":1}]}}`))
	if err != nil || resp.StatusCode != http.StatusBadRequest {
		t.Fatalf("what is no object: %v, %v", resp, err)
	}
	resp.Body.Close()
}

// TestEachLine: lines longer than the buffer are one line each, and the reading ends when it is told to.
func TestEachLine(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	var lines []string
	n, err := eachLine(strings.NewReader("a"+long+"\nb"+long+"\nc\nd\n"), 64<<10, func(begins []byte) bool {
		lines = append(lines, string(begins[:1]))
		return begins[0] != 'c'
	})
	if err != nil || strings.Join(lines, "") != "abc" || n != 2*len(long)+3 {
		t.Errorf("%v, %d bytes, %v", lines, n, err)
	}
	if _, err := eachLine(strings.NewReader("a\n"), 64<<10, func([]byte) bool { return true }); err == nil {
		t.Error("the end came, and was not said")
	}
}

func TestContinueToken(t *testing.T) {
	p := &prefix{most: 100}
	for _, part := range []string{`{"metadata":{"resourceVersion":"9",`, `"continue":"tok=en","remainingItemCount":3},`, strings.Repeat(`"items"`, 50)} {
		if n, err := p.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if len(p.bytes) != 100 || continueToken(p.bytes) != "tok=en" {
		t.Errorf("%q in %s", continueToken(p.bytes), p.bytes)
	}
	for _, none := range []string{"", `{"metadata":{}}`, `"continue":"cut off`} {
		if token := continueToken([]byte(none)); token != "" {
			t.Errorf("%q in %s", token, none)
		}
	}
}

func TestSizes(t *testing.T) {
	for name, want := range map[string]string{"configmaps": "[0.1 0.3 1]", "kep3157": "[0.0625 0.25 1]"} {
		if got := fmt.Sprint(find(name).sizes(Options{})); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	o := DefaultOptions()
	o.Point, o.Sizes = "sig", []float64{1, 3}
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "2 at most for sig") {
		t.Errorf("more Services than addresses: %v", err)
	}
	if o.Sizes = nil; o.Validate() != nil {
		t.Error(o.Validate())
	}
}
