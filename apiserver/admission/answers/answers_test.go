package answers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/decoded"
	"github.com/quorate/quorate/internal/must"
	kjson "sigs.k8s.io/json"
)

// served is a transport that answers with a text, without a network.
type served string

func (s served) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{"Location": {"/elsewhere"}}, Body: io.NopCloser(strings.NewReader(string(s)))}, nil
}

// review is an answer with a patch.
func review(patch string) string {
	raw, err := json.Marshal(map[string]any{"response": map[string]any{"patch": base64.StdEncoding.EncodeToString([]byte(patch))}})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func operations(n int, text string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(text+",", n), ",") + "]"
}

// ask sends a request of a size, and returns what was read of the answer.
func ask(ctx context.Context, l *Limits, answer string, size int) (string, *http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://hook", strings.NewReader(strings.Repeat("x", size)))
	if err != nil {
		return "", nil, err
	}
	w, err := l.Transport(served(answer)).RoundTrip(r)
	if err != nil {
		return "", nil, err
	}
	raw, err := io.ReadAll(w.Body)
	return string(raw), w, err
}

// TestAnswers: which answers are handed on. None is held once it is closed.
func TestAnswers(t *testing.T) {
	insert := `{"op":"add","path":"/l/0","value":1}`
	for _, c := range []struct {
		name, answer string
		size         int
		want         string
	}{
		{"nothing", "", 10, ""},
		{"no review", `{"a":`, 10, ""},
		{"as much as may be", `{"a":"` + strings.Repeat(" ", maxAnswer-len(`{"a":""}`)) + `"}`, 10, ""},
		{"too much", strings.Repeat(" ", maxAnswer+1), 10, "the answer has more than 8388608 bytes"},
		{"10,000 operations", review(operations(10_000, insert)), 1 << 10, ""},
		{"1,000 operations on a large object", review(operations(1_000, insert)), 3 << 20, ""},
		{"10,000 operations on a large object", review(operations(10_000, insert)), 3 << 20, "10000 operations on an object of this size are too much for one JSON patch"},
		{"30,000 operations", review(operations(30_000, insert)), 200 << 10, "30000 operations on an object"},
		{"many operations, and none in a field of nearly the same name",
			strings.Replace(review(operations(30_000, insert)), `"}}`, `","Patch":"W10="}}`, 1), 200 << 10, "30000 operations on an object"},
		{"many operations in YAML", "response:\n  patch: " + base64.StdEncoding.EncodeToString([]byte(operations(150_000, insert))), 1 << 10,
			"an answer of this size must be a review in JSON"},
		{"few operations in YAML", "response:\n  patch: " + base64.StdEncoding.EncodeToString([]byte(operations(100, insert))), 1 << 10, ""},
		{"large, and nothing of a patch", `{"response":{"patch":"` + base64.StdEncoding.EncodeToString(make([]byte, 4<<20)) + `"}}`, 3 << 20, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := NewLimits()
			got, w, err := ask(t.Context(), l, c.answer, c.size)
			if c.want == "" && (err != nil || got != c.answer) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Fatalf("%d bytes, %v, want %q", len(got), err, c.want)
			}
			if w.Header.Get("Location") != "" {
				t.Error("a redirect can be followed")
			}
			if held := l.held.Load(); held < int64(len(c.answer)) {
				t.Errorf("%d bytes are counted of %d", held, len(c.answer))
			}
			if err := w.Body.Close(); err != nil || l.held.Load() != 0 {
				t.Errorf("%d bytes are counted at the end, %v", l.held.Load(), err)
			}
		})
	}
}

// TestDecision: what is answered to one request, what patches may add to its object, and what is
// read at a time.
func TestDecision(t *testing.T) {
	l := NewLimits()
	ctx := WithDecision(t.Context())
	decisionOf(ctx).read.Store(maxDecision - 1)
	if _, w, err := ask(ctx, l, " ", 10); err != nil {
		t.Error(err)
	} else {
		w.Body.Close()
	}
	if _, w, err := ask(ctx, l, " ", 10); err == nil || err.Error() != fmt.Sprintf("the answers to one request have more than %d bytes", maxDecision) {
		t.Error(err)
	} else {
		w.Body.Close()
	}
	ctx = WithDecision(t.Context())
	for _, size := range []int{10, 10 + maxGrowth} {
		if _, w, err := ask(ctx, l, " ", size); err != nil {
			t.Errorf("a request of %d bytes: %v", size, err)
		} else {
			w.Body.Close()
		}
	}
	if _, _, err := ask(ctx, l, " ", 11+maxGrowth); err == nil || err.Error() != "patches have made the object more than 8388608 bytes larger" {
		t.Error(err)
	}
	l.held.Store(maxAnswers)
	if _, _, err := ask(t.Context(), l, " ", 10); err == nil || !strings.Contains(err.Error(), "the answers of all webhooks") {
		t.Error(err)
	}
}

// TestCutAnswer: how an answer ends that was cut is told as it is.
func TestCutAnswer(t *testing.T) {
	cut := errors.New("cut")
	b := &body{ctx: t.Context(), from: io.NopCloser(io.MultiReader(strings.NewReader("{"), failing{cut})), limits: NewLimits(), decision: &decision{}}
	if _, err := io.ReadAll(b); !errors.Is(err, cut) {
		t.Error(err)
	}
	// So is one that its server has ended because the time is over.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := ask(ctx, NewLimits(), " ", 10); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// FuzzPatch: whatever a webhook answers, what is handed on is within the bound of work.
func FuzzPatch(f *testing.F) {
	f.Add([]byte(review(`[{"op":"add","path":"/a","value":1}]`)), int64(1000))
	f.Add([]byte(review(operations(100, `{"op":"remove","path":"/a"}`))), int64(3<<30))
	f.Add([]byte(`{"response":{"patch":"W10=","Patch":"W1tdXQ=="}}`), int64(1<<40))
	f.Add([]byte(`{"response":[]}`), int64(1<<40))
	f.Fuzz(func(t *testing.T, raw []byte, sent int64) {
		if sent < 0 || sent > 1<<40 {
			return
		}
		if checkPatch(raw, sent) != nil {
			return
		}
		var answer struct {
			Response struct {
				Patch []byte `json:"patch"`
			} `json:"response"`
		}
		var all []json.RawMessage
		if kjson.UnmarshalCaseSensitivePreserveInts(raw, &answer) != nil || json.Unmarshal(answer.Response.Patch, &all) != nil {
			return
		}
		objects := int64(0)
		for _, o := range all {
			if len(o) >= len(`{"op":"test","path":""}`) { // a shorter one is none
				objects++
			}
		}
		if work := objects * (sent + int64(len(answer.Response.Patch))); work > maxWork {
			t.Errorf("%d operations, %d bytes sent", objects, sent)
		}
	})
}

// TestDecodedMemory: what an answer takes when it is decoded counts until that is over, and a context has one answer at a
// time.
func TestDecodedMemory(t *testing.T) {
	causes := func(n int) string {
		return `{"response":{"status":{"details":{"causes":[` + strings.Repeat("{},", n) + `{}]}}}}`
	}
	l := NewLimits()
	if _, _, err := ask(t.Context(), l, causes(200_000), 10); !errors.As(err, new(*decoded.TooLargeError)) {
		t.Errorf("too large: %v", err)
	}
	patch := review(operations(1, `{"op":"add","path":"/metadata/managedFields","value":[`+strings.Repeat("{},", 100_000)+`{}]}`))
	_, w, err := ask(t.Context(), l, patch, 10)
	if !errors.As(err, new(*decoded.TooLargeError)) {
		t.Errorf("a patch that is too large: %v", err)
	}
	w.Body.Close()
	large := causes(40_000)
	n := int(maxDecoded / decoded.Cost([]byte(large)))
	var ends []func()
	for range n {
		ctx, done := Charged(t.Context())
		for range 3 { // the first two were in vain
			if _, _, err := ask(ctx, l, large, 10); err != nil {
				t.Fatal(err)
			}
		}
		ends = append(ends, done)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := ask(ctx, l, large, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("more than there is room for: %v", err)
	}
	for _, done := range ends {
		done()
		done()
	}
	if give, err := l.room.Take(t.Context(), maxDecoded, maxDecoded); err != nil {
		t.Error(err)
	} else {
		give()
	}
}

// TestAlone: nothing that a server sends behind an answer is taken for the next one.
func TestAlone(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !r.Close {
			t.Error("the connection is to be used again")
		}
		conn, out, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		for _, text := range []string{"mine", "next"} {
			fmt.Fprintf(out, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n%s", text)
		}
		_ = out.Flush()
		_, _ = conn.Read(make([]byte, 1)) // until the client ends it
	}))
	defer s.Close()
	client := http.Client{Transport: NewLimits().Transport(s.Client().Transport)}
	for range 20 {
		r, err := http.NewRequestWithContext(Alone(t.Context()), http.MethodPost, s.URL, strings.NewReader("x"))
		must.OK(t, err)
		w, err := client.Do(r)
		must.OK(t, err)
		got, err := io.ReadAll(w.Body)
		w.Body.Close()
		if err != nil || string(got) != "mine" {
			t.Errorf("%q %v", got, err)
		}
	}
}
