package watches

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// watchForms are the forms that a client can have its events in, by what it accepts.
var watchForms = map[string]string{
	"json":              "application/json",
	overHTTP1:           "application/json",
	"table":             "application/json;as=Table;v=v1;g=meta.k8s.io",
	"metadata":          "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
	"protobuf":          "application/vnd.kubernetes.protobuf",
	"metadata protobuf": "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
}

// overHTTP1 is the form that has connections of HTTP/1.1; the others have HTTP/2.
const overHTTP1 = "json over HTTP/1.1"

// rawEvent is an event in the terms that all forms have.
type rawEvent struct {
	Type, Name, ResourceVersion string
	Label                       string // the value of "x"
	End                         bool   // of the initial events
	Code                        int    // of an ERROR
	Cause                       string
	columns                     bool
	data                        map[string]string // of a ConfigMap, where the form has it
}

// rawWatch is the answer to a watch, read frame by frame.
type rawWatch struct {
	form string
	body io.ReadCloser
	r    *bufio.Reader
}

func openRawWatch(t *testing.T, n *cluster.Node, form, path string) *rawWatch {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.API+path, nil)
	must.OK(t, err)
	req.Header.Set("Accept", watchForms[form])
	req.Header.Set("Accept-Encoding", "gzip")
	client, protocol := n.HTTP(t), 2
	if form == overHTTP1 {
		client, protocol = n.NewHTTP(t, "http/1.1"), 1
	}
	resp, err := client.Do(req)
	must.OK(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	if resp.ProtoMajor != protocol {
		t.Errorf("%s: %s", form, resp.Proto)
	}
	want := "application/json"
	if strings.HasSuffix(form, "protobuf") {
		want = "application/vnd.kubernetes.protobuf;stream=watch"
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Encoding") != "" || resp.Header.Get("Content-Type") != want {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		t.Fatalf("%s: %s as %s: %s, %v\n%s", n.Name, path, form, resp.Status, resp.Header, b)
	}
	return &rawWatch{form: form, body: resp.Body, r: bufio.NewReader(resp.Body)}
}

// next reads one event; ok is false at the end of the stream.
func (w *rawWatch) next() (e rawEvent, ok bool, err error) {
	if strings.HasSuffix(w.form, "protobuf") {
		return w.nextProtobuf()
	}
	line, err := w.r.ReadBytes('\n')
	if err == io.EOF && len(line) == 0 {
		return e, false, nil
	}
	if err != nil {
		return e, false, err
	}
	var frame struct {
		Type   string
		Object json.RawMessage
	}
	if err := json.Unmarshal(line, &frame); err != nil {
		return e, false, fmt.Errorf("%w in %s", err, line)
	}
	object := frame.Object
	if w.form == "table" && frame.Type != "ERROR" {
		var table struct {
			Kind              string
			ColumnDefinitions []any
			Rows              []struct{ Object json.RawMessage }
		}
		if err := json.Unmarshal(object, &table); err != nil || len(table.Rows) != 1 || table.Kind != "Table" {
			return e, false, fmt.Errorf("%v: no Table with one row: %s", err, line)
		}
		e.columns, object = len(table.ColumnDefinitions) > 0, table.Rows[0].Object
	}
	return e, true, e.fill(frame.Type, object)
}

// fill reads an object or a Status in JSON.
func (e *rawEvent) fill(kind string, object []byte) error {
	var o struct {
		metav1.Status
		Metadata metav1.ObjectMeta
		Data     map[string]string
	}
	if kind == "ERROR" {
		if err := json.Unmarshal(object, &o.Status); err != nil {
			return err
		}
		e.Type, e.Code = kind, int(o.Code)
		if o.Details != nil && len(o.Details.Causes) > 0 {
			e.Cause = string(o.Details.Causes[0].Type)
		}
		return nil
	}
	var m struct {
		Metadata metav1.ObjectMeta
		Data     map[string]string
	}
	if err := json.Unmarshal(object, &m); err != nil {
		return err
	}
	e.meta(kind, m.Metadata)
	e.data = m.Data
	return nil
}

func (e *rawEvent) meta(kind string, m metav1.ObjectMeta) {
	e.Type, e.Name, e.ResourceVersion, e.Label = kind, m.Name, m.ResourceVersion, m.Labels["x"]
	e.End = m.Annotations["k8s.io/initial-events-end"] == "true"
}

var protobufScheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddMetaToScheme(s)
	metav1.AddToGroupVersion(s, corev1.SchemeGroupVersion)
	if err := corev1.AddToScheme(s); err != nil {
		panic(err)
	}
	return s
}()

func (w *rawWatch) nextProtobuf() (e rawEvent, ok bool, err error) {
	var length [4]byte
	if _, err := io.ReadFull(w.r, length[:]); err == io.EOF {
		return e, false, nil
	} else if err != nil {
		return e, false, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(w.r, frame); err != nil {
		return e, false, err
	}
	var event metav1.WatchEvent
	if err := event.Unmarshal(frame); err != nil {
		return e, false, err
	}
	obj, _, err := protobuf.NewSerializer(protobufScheme, protobufScheme).Decode(event.Object.Raw, nil, nil)
	if err != nil {
		return e, false, err
	}
	switch o := obj.(type) {
	case *corev1.ConfigMap:
		e.meta(event.Type, o.ObjectMeta)
		e.data = o.Data
	case *metav1.PartialObjectMetadata:
		e.meta(event.Type, o.ObjectMeta)
	case *metav1.Status:
		b, err := json.Marshal(o)
		if err != nil {
			return e, false, err
		}
		return e, true, e.fill("ERROR", b)
	default:
		return e, false, fmt.Errorf("an event with a %T", obj)
	}
	return e, true, nil
}

// TestWatchForms tells one story to watches in every form on a leader, a follower
// and a non-voter: initial events and their end, selector transitions, deletions,
// the end of time, and errors. All must tell it in the same words.
func TestWatchForms(t *testing.T) {
	r := cluster.SharedReaders(t)
	for _, row := range []struct {
		role string
		node *cluster.Node
	}{{"leader", r.Leader}, {"follower", r.Follower}, {"nonvoter", r.Nonvoter}} {
		t.Run(row.role, func(t *testing.T) {
			for lives := 3 * time.Second; !tellWatches(t, r, row.node, fmt.Sprintf("forms-%s-%d", row.role, lives/time.Second), lives); lives *= 2 {
				if lives > 20*time.Second {
					t.Fatalf("seven writes took longer than %s", lives)
				}
			}
		})
	}
}

// tellWatches is false if the watches ended before the story did.
func tellWatches(t *testing.T, r *cluster.Readers, n *cluster.Node, ns string, lives time.Duration) bool {
	ctx := t.Context()
	writer := r.Follower.Typed(t).CoreV1()
	cluster.Namespace(t, r.Follower, ns)
	maps := writer.ConfigMaps(ns)
	create := func(name string, labels map[string]string) string {
		t.Helper()
		cm, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"k": "first"}}, metav1.CreateOptions{})
		must.OK(t, err)
		return cm.ResourceVersion
	}
	patch := func(name, body string) string {
		t.Helper()
		cm, err := maps.Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		must.OK(t, err)
		return cm.ResourceVersion
	}
	x := map[string]string{"x": "1"}
	a, _ := create("a", x), create("b", nil)
	path := "/api/v1/namespaces/" + ns + "/configmaps"
	open := map[string]*rawWatch{}
	began := time.Now()
	for form := range watchForms {
		open[form] = openRawWatch(t, n, form, path+"?watch=1&labelSelector=x%3D1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds="+fmt.Sprint(int(lives.Seconds())))
	}
	begins := patch("b", `{"metadata":{"labels":{"x":"1"}}}`)
	ceases := patch("a", `{"metadata":{"labels":{"x":"2"}},"data":{"k":"second"}}`)
	changes := patch("b", `{"data":{"k":"second"}}`)
	must.OK(t, maps.Delete(ctx, "b", metav1.DeleteOptions{}))
	after := create("c", nil)
	//wall: tells whether the watch can still live; a slower run is made again
	if time.Since(began) > lives*2/3 {
		return false
	}
	want := []rawEvent{
		{Type: "ADDED", Name: "a", ResourceVersion: a, Label: "1"},
		{Type: "BOOKMARK", End: true},
		{Type: "ADDED", Name: "b", ResourceVersion: begins, Label: "1"},
		{Type: "DELETED", Name: "a", ResourceVersion: ceases, Label: "1"},
		{Type: "MODIFIED", Name: "b", ResourceVersion: changes, Label: "1"},
		{Type: "DELETED", Name: "b", Label: "1"},
	}
	last := map[string]string{}
	for form, w := range open {
		var got []rawEvent
		for {
			e, ok, err := w.next()
			if err != nil {
				t.Fatalf("%s: after %+v: %v", form, got, err)
			}
			if !ok {
				break
			}
			if len(got) > 0 && cluster.Revision(t, e.ResourceVersion) < cluster.Revision(t, got[len(got)-1].ResourceVersion) {
				t.Errorf("%s: %+v after %+v", form, e, got[len(got)-1])
			}
			if e.columns != (form == "table" && len(got) == 0) {
				t.Errorf("%s: event %d has columns: %v", form, len(got), e.columns)
			}
			if (form == "json" || form == "protobuf") && e.Type == "DELETED" {
				if k := map[string]string{"a": "first", "b": "second"}[e.Name]; e.data["k"] != k {
					t.Errorf("%s: DELETED %s has %q, want the content before, %q", form, e.Name, e.data["k"], k)
				}
			}
			got = append(got, e)
		}
		// The time is up: a last bookmark, beyond everything that was written.
		end := got[len(got)-1]
		if end.Type != "BOOKMARK" || cluster.Revision(t, end.ResourceVersion) < cluster.Revision(t, after) {
			t.Errorf("%s: the last event is %+v, want a bookmark from %s on", form, end, after)
		}
		last[form] = end.ResourceVersion
		// A bookmark may come at any time: one does soon after the initial events.
		got = slices.DeleteFunc(got, func(e rawEvent) bool { return e.Type == "BOOKMARK" && !e.End })
		if len(got) != len(want) {
			t.Fatalf("%s: %+v, want %+v", form, got, want)
		}
		for i, w := range want {
			g := got[i]
			if w.ResourceVersion == "" {
				if i == len(want)-1 && (cluster.Revision(t, g.ResourceVersion) <= cluster.Revision(t, changes) || cluster.Revision(t, g.ResourceVersion) >= cluster.Revision(t, after)) {
					t.Errorf("%s: the deletion has %s, it was between %s and %s", form, g.ResourceVersion, changes, after)
				}
				w.ResourceVersion = g.ResourceVersion
			}
			if g.columns, g.data = false, nil; fmt.Sprint(g) != fmt.Sprint(w) {
				t.Errorf("%s: event %d is %+v, want %+v", form, i, g, w)
			}
		}
	}
	resumeElsewhere(t, r, n, path, last, patch("a", `{"metadata":{"labels":{"x":"1"}}}`), patch("a", `{"data":{"k":"third"}}`))
	watchErrors(t, r, n, path)
	watchAddresses(t, n, ns, patch)
	return true
}

// resumeElsewhere goes on from the last bookmark of each form on the other nodes:
// exactly what was written since must come.
func resumeElsewhere(t *testing.T, r *cluster.Readers, n *cluster.Node, path string, last map[string]string, want ...string) {
	t.Helper()
	others := r.Cluster.Others(n)
	i := 0
	for form, rv := range last {
		on := others[i%len(others)]
		i++
		w := openRawWatch(t, on, form, path+"?watch=1&labelSelector=x%3D1&resourceVersion="+rv)
		for j, revision := range want {
			e, ok, err := w.next()
			if wantType := []string{"ADDED", "MODIFIED"}[j]; !ok || err != nil || e.ResourceVersion != revision || e.Type != wantType {
				t.Errorf("%s, resumed on %s: %+v, %v, want %s %s", form, on.Name, e, err, wantType, revision)
			}
		}
	}
}

// watchErrors: refusals that come in the stream.
func watchErrors(t *testing.T, r *cluster.Readers, n *cluster.Node, path string) {
	t.Helper()
	for form := range watchForms {
		for query, want := range map[string]rawEvent{
			fmt.Sprintf("resourceVersion=%d", r.Below): {Type: "ERROR", Code: 410},
			"resourceVersion=9000000000":               {Type: "ERROR", Code: 504, Cause: "ResourceVersionTooLarge"},
			"resourceVersion=9000000000&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true": {Type: "ERROR", Code: 504, Cause: "ResourceVersionTooLarge"},
		} {
			w := openRawWatch(t, n, form, path+"?watch=1&"+query)
			e, _, err := w.next()
			if err != nil || fmt.Sprint(e) != fmt.Sprint(want) {
				t.Errorf("%s: %s: %+v, %v, want %+v", form, query, e, err, want)
			}
			if e, ok, err := w.next(); ok || err != nil {
				t.Errorf("%s: %s: after the error: %+v, %v", form, query, e, err)
			}
		}
	}
}

// watchAddresses: the ways to name one object, and times that are no time.
func watchAddresses(t *testing.T, n *cluster.Node, ns string, patch func(name, body string) string) {
	t.Helper()
	now := "resourceVersionMatch=NotOlderThan&sendInitialEvents=false"
	var watches []*rawWatch
	for _, path := range []string{
		"/api/v1/namespaces/" + ns + "/configmaps?watch=1&fieldSelector=metadata.name%3Da&" + now,
		"/api/v1/configmaps?watch=true&fieldSelector=metadata.name%3Da,metadata.namespace%3D" + ns + "&" + now,
		"/api/v1/watch/namespaces/" + ns + "/configmaps/a?" + now,
		"/api/v1/watch/namespaces/" + ns + "/configmaps?" + now + "&timeoutSeconds=0",
		"/api/v1/namespaces/" + ns + "/configmaps?watch=1&timeoutSeconds=9223372036854775807&" + now,
	} {
		watches = append(watches, openRawWatch(t, n, "json", path))
	}
	rv := patch("a", `{"data":{"k":"fourth"}}`)
	for i, w := range watches {
		if e, ok, err := w.next(); !ok || err != nil || e.ResourceVersion != rv || e.Type != "MODIFIED" {
			t.Errorf("address %d: %+v, %v, want MODIFIED %s", i, e, err, rv)
		}
	}
	for query, want := range map[string]int{
		"watch=1&timeoutSeconds=x": 400, "watch=1&resourceVersion=-1": 400, "watch=1&resourceVersionMatch=Exact&resourceVersion=1": 422,
		"watch=1&fieldSelector=spec.x%3D1": 400, "watch=1&labelSelector=%21%21": 400,
	} {
		body, resp, err := n.Get(t, "/api/v1/namespaces/"+ns+"/configmaps?"+query)
		if err != nil || resp.StatusCode != want || !bytes.Contains(body, []byte(`"kind":"Status"`)) {
			t.Errorf("%s: %v %v %s, want %d", query, resp, err, body, want)
		}
	}
}
