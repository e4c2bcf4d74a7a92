package story

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// echo is the server that the stories of testdata are told to.
//
//	/echo         answers with the request: method, URI, headers that begin with T, body
//	/status/N     answers N
//	/count        answers how often it was asked for
//	/until/N      is 404 until it is asked for the N-th time
//	/events/A,B   a watch: an ADDED of each, then it ends
//	/open/A,B     a watch that does not end
func echo() http.Handler {
	var count, asked atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/count", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, count.Add(1)) })
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		w.WriteHeader(code)
	})
	mux.HandleFunc("/until/{n}", func(w http.ResponseWriter, r *http.Request) {
		if n, _ := strconv.ParseInt(r.PathValue("n"), 10, 64); asked.Add(1) < n {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, "there after ", asked.Load())
	})
	events := func(w http.ResponseWriter, names string) {
		for _, name := range strings.Split(names, ",") {
			fmt.Fprintf(w, `{"type":"ADDED","object":{"name":%q}}`+"\n", name)
		}
		_ = http.NewResponseController(w).Flush()
	}
	mux.HandleFunc("/events/{names}", func(w http.ResponseWriter, r *http.Request) { events(w, r.PathValue("names")) })
	mux.HandleFunc("/open/{names}", func(w http.ResponseWriter, r *http.Request) {
		events(w, r.PathValue("names"))
		<-r.Context().Done()
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "echo") {
			mux.ServeHTTP(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		w.Header().Add("Two", "one")
		w.Header().Add("Two", "another")
		fmt.Fprintln(w, r.Method, r.RequestURI)
		names := []string{}
		for name := range r.Header {
			if strings.HasPrefix(name, "T") {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			fmt.Fprintln(w, name, r.Header[name])
		}
		w.Write(body)
	})
}

// teller returns what a story is told to, until the end of the test.
func teller(t *testing.T) Send {
	server := httptest.NewServer(echo())
	t.Cleanup(server.Close)
	to, err := url.Parse(server.URL)
	must.OK(t, err)
	return func(r *http.Request) (*http.Response, error) {
		if r.URL.Host != "" || r.URL.Scheme != "" {
			t.Errorf("a request has the host %s", r.URL)
		}
		r.URL.Scheme, r.URL.Host = to.Scheme, to.Host
		return server.Client().Do(r)
	}
}

// richer has a directive and a mark of its own.
var richer = Language{
	Directives: []Directive{
		{Usage: "@set NAME [VALUE]", Do: func(_ context.Context, vars map[string]string, args []string) error {
			vars[args[0]] = strings.Join(args[1:], "")
			return nil
		}},
		{Usage: "@fail WHY", Do: func(_ context.Context, _ map[string]string, args []string) error { return errors.New(args[0]) }},
	},
	Marks: map[byte]func([]string, string) error{
		// The words of the answer's last line, in any order.
		'%': func(want []string, answer string) error {
			got := strings.Fields(answer[strings.LastIndexByte(answer, '\n')+1:])
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				return fmt.Errorf("the words are %s, want %s", got, want)
			}
			return nil
		},
	},
}

var outcome = regexp.MustCompile(`(?m)^=> (.+)$`)

// TestLanguage tells the stories of testdata, each of which says what comes of it:
//
//	-- what it shows
//	the story
//	=> ok, or LINE: what is said, when it is read (mistakes.txt) or when it is played
func TestLanguage(t *testing.T) {
	for _, name := range []string{"holds.txt", "fails.txt", "mistakes.txt"} {
		raw, err := os.ReadFile(filepath.Join("testdata", name))
		must.OK(t, err)
		blocks := strings.Split("\n"+string(raw), "\n-- ")[1:]
		if len(blocks) < 8 {
			t.Fatalf("%s has %d stories: is it read?", name, len(blocks))
		}
		for _, block := range blocks {
			title, text, _ := strings.Cut(block, "\n")
			end := outcome.FindStringSubmatchIndex(text)
			if end == nil {
				t.Fatalf("%s: %s: nothing comes of it", name, title)
			}
			want := text[end[2]:end[3]]
			t.Run(strings.TrimSuffix(name, ".txt")+"/"+title, func(t *testing.T) {
				t.Parallel()
				s, err := richer.Parse("story.txt", text[:end[0]])
				if (err != nil) != (name == "mistakes.txt") {
					t.Fatalf("read: %v", err)
				}
				if err == nil {
					switch {
					case strings.HasPrefix(title, "in vain: "):
						s.Patience = 500 * time.Millisecond
					case name == "fails.txt":
						s.Patience = 5 * time.Second
					}
					err = s.Run(t.Context(), teller(t), map[string]string{"given": "a gift"})
				}
				if got := said(err); !strings.HasPrefix(got, want) {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			})
		}
	}
}

// said is an error in the words of testdata: without the file.
func said(err error) string {
	if err == nil {
		return "ok"
	}
	return strings.TrimSpace(strings.TrimPrefix(err.Error(), "story.txt:"))
}

// TestHeadings reads files of several stories.
func TestHeadings(t *testing.T) {
	const request = "> GET /echo\n< 200\n"
	for _, x := range []struct{ text, want string }{
		{"# Why.\n\n== a: The first\n" + request + "== b-2: The second\n@not-yet one day\n" + request, "a: The first | b-2: The second, not yet: one day"},
		{"== a: It ends\n> GET /echo\n< 200\n~ GET\n== b: At once\n" + request, "a: It ends | b: At once"},
		{request + "== a: Late\n" + request, "f.txt:1: before the first story: > GET /echo"},
		{"== A: Capitals\n" + request, "f.txt:1: not a heading: == A: Capitals"},
		{"== a: Unanswered\n> GET /echo\n== b: The next\n" + request, "f.txt:2: the request has no answer"},
		{"== a: Empty\n# nothing\n== b: Full\n" + request, "f.txt: nothing happens in the story a"},
		{"== a: Wrong\n\n> GET /echo\n< 200\n@not-yet\n", "f.txt:5: unknown directive @not-yet"},
		{"# Only a comment.\n", "f.txt: there is no story"},
	} {
		t.Chdir(t.TempDir())
		must.OK(t, os.WriteFile("f.txt", []byte(x.text), 0o600))
		stories, err := Language{}.Stories("f.txt")
		var got []string
		for _, s := range stories {
			line := s.Name + ": " + s.Title
			if s.NotYet != "" {
				line += ", not yet: " + s.NotYet
			}
			got = append(got, line)
		}
		if err != nil {
			got = append(got, err.Error())
		}
		if strings.Join(got, " | ") != x.want {
			t.Errorf("%q\ngot  %s\nwant %s", x.text, strings.Join(got, " | "), x.want)
		}
	}
}

// TestStoryFile reads a file that is one story, and plays it twice.
func TestStoryFile(t *testing.T) {
	t.Chdir(t.TempDir())
	text := "> POST /echo\n${ns}\n< 200\n~ POST\n$word (own)\n"
	must.OK(t, os.WriteFile("create.txt", []byte(text), 0o600))
	s, err := Language{}.Story("create.txt")
	must.OK(t, err)
	if s.Name != "create" || s.Title != "" {
		t.Errorf("it is called %s, %s", s.Name, s.Title)
	}
	vars := map[string]string{"ns": "my own"}
	for range 2 {
		if err := s.Run(t.Context(), teller(t), vars); err != nil {
			t.Error(err)
		}
	}
	if len(vars) != 1 {
		t.Errorf("the caller's variables are %v", vars)
	}
	err = s.Run(t.Context(), teller(t), nil)
	if err == nil || err.Error() != "create.txt:1: ${ns}: there is no such variable" {
		t.Errorf("without ns: %v", err)
	}
	if _, err := (Language{}).Story("missing.txt"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
