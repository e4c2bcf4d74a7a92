//go:build correctness

package correctness

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/quorate/quorate/test/judges"
	"github.com/quorate/quorate/test/judges/history"
	"github.com/quorate/quorate/test/judges/history/dense"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// Judge tells a history to upstream's model three times: porcupine looks for an order of all
// operations that the model allows; Replay takes them in the order of their revisions, and
// then holds every read that may be old against the state that it told of; WatchValidator
// holds every watch against what Replay saw. An error is the first that was refused.
func Judge(h *history.History, patience time.Duration) (judges.Counts, error) {
	d, err := dense.New(h)
	if err != nil {
		return judges.Counts{}, err
	}
	t := &telling{History: d}
	if err = t.operations(patience); err == nil {
		err = t.replay()
	}
	if err == nil {
		err = t.watches()
	}
	return t.counts, err
}

// telling is how a history is told.
type telling struct {
	*dense.History
	counts judges.Counts
	// ops are told to porcupine, places are where they stand in order.
	ops      []porcupine.Operation
	places   []uint64
	replayed *Replay
}

func newPod() runtime.Object     { return &example.Pod{} }
func newPodList() runtime.Object { return &example.PodList{} }

func emptyModel() *Model {
	return NewEmptyModel("", newPod, newPodList, storage.APIObjectVersioner{})
}

// annotation is where an object has its value.
const annotation = "value"

// nowhere is the namespace of keys that have none.
const nowhere = "-"

func podOf(key, value string, rev uint64) *example.Pod {
	namespace, name, ok := strings.Cut(key, "/")
	if !ok {
		namespace, name = nowhere, key
	}
	p := newTestPod(name, namespace, "", revision(rev))
	p.Annotations = map[string]string{annotation: value}
	return p
}

func revision(rev uint64) string {
	if rev == 0 {
		return ""
	}
	return strconv.FormatUint(rev, 10)
}

func keyOf(key string) string { return mustGetKey(podOf(key, "", 0)) }

// operations has porcupine look for an order.
func (t *telling) operations(patience time.Duration) error {
	t.counts.Runs, t.counts.Silent = 1, t.Silent
	start := 2 * int64(t.Base()+1)
	for i := range t.Log[:t.Base()] {
		e := &t.Log[i]
		t.tell(int64(2*i)+1, int64(2*i)+2, e.Revision, Request{Op: OpCreate, Key: keyOf(e.Key), Create: CreateRequest{Object: podOf(e.Key, e.Value, 0)}},
			Response{Object: podOf(e.Key, e.Value, e.Revision)})
	}
	end := start
	for i := range t.Ops {
		o := &t.Ops[i]
		request, response, ok := t.op(o)
		if !ok {
			continue
		}
		// What never returned may have taken effect, so its call is before the end too.
		end = max(end, o.Call+start)
		returned := o.Return
		if o.Outcome == history.Unknown {
			returned = t.Until(o.State)
		}
		if returned != dense.Forever {
			returned += start
			end = max(end, returned)
		}
		t.tell(o.Call+start, returned, o.Place, request, response)
	}
	for i := range t.Watches {
		end = max(end, t.initial(&t.Watches[i], start))
	}
	t.atLast(end)
	t.counts.Operations = len(t.ops)
	return t.porcupine(patience)
}

// initial tells the initial events of a watch without a resourceVersion as a list, which they
// must be as new as. It returns when it ended.
func (t *telling) initial(w *history.Watch, start int64) (end int64) {
	last := slices.IndexFunc(w.Events, func(e history.Event) bool { return e.InitialEnd })
	if !w.Initial || !w.Unset || last < 0 {
		return 0
	}
	var items []history.Item
	for _, e := range w.Events[:last] {
		items = append(items, e.Item)
	}
	at := t.Revision(w.Events[last].Revision)
	key, opts := scope(w.Prefix, w.Selector)
	end = start + dense.Returned(w.Events[last].At)
	t.tell(start+dense.Called(w.Begin), end, at, Request{Op: OpList, Key: key, List: ListRequest{Options: opts}}, Response{Object: t.list(items, at)})
	return end
}

// atLast tells what the log itself is: a list of everything after the end.
func (t *telling) atLast(end int64) {
	at := uint64(len(t.Log)) + 1
	var items []history.Item
	for _, key := range t.Keys() {
		if e := t.At(key, at); e != nil {
			items = append(items, history.Item{Key: key, Value: e.Value})
		}
	}
	slices.SortFunc(items, func(a, b history.Item) int { return cmp.Compare(keyOf(a.Key), keyOf(b.Key)) })
	list := t.list(items, at)
	for i := range list.Items {
		list.Items[i].ResourceVersion = revision(t.At(items[i].Key, at).Revision)
	}
	t.tell(end+1, end+2, at, Request{Op: OpList, Key: "/pods/", List: ListRequest{Options: options("", "")}}, Response{Object: list})
}

func (t *telling) tell(call, end int64, place uint64, request Request, response Response) {
	t.ops = append(t.ops, porcupine.Operation{ClientId: len(t.ops), Input: request, Call: call, Output: response, Return: min(end, math.MaxInt64)})
	t.places = append(t.places, place)
}

func (t *telling) porcupine(patience time.Duration) error {
	m := porcupine.Model{
		Init: func() any { return emptyModel() },
		Step: func(state, in, out any) (bool, any) {
			ok, next, _ := state.(*Model).Step(in.(Request), out.(Response))
			return ok, next
		},
		Equal: func(a, b any) bool { return a.(*Model).Equal(b.(*Model)) },
	}
	result, info := porcupine.CheckOperationsVerbose(m, t.ops, patience)
	if result == porcupine.Ok {
		return nil
	}
	return fmt.Errorf("linearization: %v; %s", result, t.stuck(info))
}

// stuck describes the operation at which the longest attempt ended: of those that it left
// out, the one that returned first.
func (t *telling) stuck(info porcupine.LinearizationInfo) string {
	var longest []int
	for _, partial := range info.PartialLinearizations() {
		for _, p := range partial {
			if len(p) > len(longest) {
				longest = p
			}
		}
	}
	first := -1
	for i := range t.ops {
		if !slices.Contains(longest, i) && (first < 0 || t.ops[i].Return < t.ops[first].Return) {
			first = i
		}
	}
	if first < 0 {
		return "nothing is left out"
	}
	return fmt.Sprintf("of %d operations %d fit; the first that fits nowhere: %s", len(t.ops), len(longest), t.ops[first].Input.(Request).Describe(t.ops[first].Output.(Response)))
}

// op is an operation as upstream's storage is asked, and as it answers.
func (t *telling) op(o *dense.Op) (Request, Response, bool) {
	request := Request{Key: keyOf(o.Key)}
	switch {
	case o.Kind == history.List:
		return t.lists(o)
	case o.Kind == history.Get:
		request.Op, request.Get.Options.ResourceVersion = OpGet, t.asked(o)
		if len(o.Items) > 0 {
			it := o.Items[0]
			return request, Response{Object: podOf(it.Key, it.Value, t.revisionOf(it))}, true
		}
		return request, Response{Err: storage.NewKeyNotFoundError(request.Key, int64(o.State))}, true
	case o.Outcome == history.Unknown && o.State == 0: // it did not happen
		return request, Response{}, false
	}
	var preconditions *storage.Preconditions
	if dense.Conditional(o.Kind) {
		rev := "1" // no version has it
		if e := t.Wrote(o.Precondition); e != nil && e.Key == o.Key {
			rev = revision(e.Revision)
		}
		preconditions = &storage.Preconditions{ResourceVersion: &rev}
	}
	switch o.Kind {
	case history.Create:
		request.Op, request.Create.Object = OpCreate, podOf(o.Key, o.Value, 0)
	case history.Update, history.UpdateIf:
		request.Op, request.Update.Preconditions = OpUpdate, preconditions
		request.Update.UpdateFunc = storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			p := obj.DeepCopyObject().(*example.Pod)
			p.Annotations = map[string]string{annotation: o.Value}
			return p, nil
		})
	default:
		request.Op, request.Delete.Preconditions = OpDelete, preconditions
	}
	if o.Outcome == history.Refused {
		return request, Response{Err: t.refusal(o, request.Key, preconditions)}, true
	}
	value := o.Value
	if dense.IsDelete(o.Kind) && o.State >= 2 {
		value = t.Log[o.State-2].Value
	}
	return request, Response{Object: podOf(o.Key, value, o.State)}, true
}

// errConflict is that of a condition which held.
var errConflict = errors.New("conflict with what was asked for")

func (t *telling) refusal(o *dense.Op, key string, preconditions *storage.Preconditions) error {
	e := t.At(o.Key, o.Place)
	switch {
	case o.Code == http.StatusNotFound:
		return storage.NewKeyNotFoundError(key, int64(o.Place))
	case o.Kind == history.Create:
		return storage.NewKeyExistsError(key, 0)
	case e == nil:
		// A condition on what is gone: our API says that the condition fails.
		return storage.NewKeyNotFoundError(key, int64(o.Place))
	}
	if err := preconditions.Check(key, podOf(e.Key, e.Value, e.Revision)); err != nil {
		return err
	}
	return errConflict
}

// asked is the resourceVersion of a read.
func (t *telling) asked(o *dense.Op) string {
	switch o.Mode {
	case history.MostRecent:
		return ""
	case history.Any:
		return "0"
	}
	return revision(t.Revision(o.Asked))
}

// revisionOf is the revision of an object that a client saw; 1, which no version has, if the
// log does not have it.
func (t *telling) revisionOf(it history.Item) uint64 {
	if e := t.Wrote(it.Revision); e != nil && e.Key == it.Key {
		return e.Revision
	}
	return 1
}

func (t *telling) list(items []history.Item, at uint64) *example.PodList {
	list := &example.PodList{Items: make([]example.Pod, len(items))}
	list.ResourceVersion = revision(at)
	for i, it := range items {
		list.Items[i] = *podOf(it.Key, it.Value, t.revisionOf(it))
	}
	return list
}

func (t *telling) lists(o *dense.Op) (request Request, response Response, ok bool) {
	if o.Limit > 0 || o.After != "" {
		t.counts.Paged++
		return request, response, false
	}
	key, opts := scope(o.Prefix, "")
	opts.ResourceVersion = t.asked(o)
	switch o.Mode {
	case history.NotOlderThan:
		opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	case history.Exact:
		opts.ResourceVersionMatch = metav1.ResourceVersionMatchExact
	}
	return Request{Op: OpList, Key: key, List: ListRequest{Options: opts}}, Response{Object: t.list(o.Items, o.State)}, true
}

// scope is the key of a list or a watch: a namespace, if the prefix is one, or all; then the
// rest is a selector.
func scope(prefix, selector string) (key string, opts storage.ListOptions) {
	key = "/pods/"
	if namespace, ok := strings.CutSuffix(prefix, "/"); ok && !strings.Contains(namespace, "/") {
		key, prefix = key+prefix, ""
	}
	return key, options(prefix, selector)
}

func options(prefix, selector string) storage.ListOptions {
	opts := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
	if prefix == "" && selector == "" {
		return opts
	}
	opts.Predicate.Label = labels.SelectorFromSet(labels.Set{"selected": "true"})
	opts.Predicate.Field = fields.Everything()
	opts.Predicate.GetAttrs = func(obj runtime.Object) (labels.Set, fields.Set, error) {
		p := obj.(*example.Pod)
		key := p.Name
		if p.Namespace != nowhere {
			key = p.Namespace + "/" + p.Name
		}
		selected := strings.HasPrefix(key, prefix) && strings.Contains(p.Annotations[annotation], selector)
		return labels.Set{"selected": strconv.FormatBool(selected)}, nil, nil
	}
	return opts
}

// replay takes the operations in the order of their places.
func (t *telling) replay() error {
	order := make([]int, len(t.ops))
	for i := range order {
		order[i] = i
	}
	writes := func(i int) int {
		if op := t.ops[i]; op.Output.(Response).Err == nil && op.Input.(Request).Op != OpGet && op.Input.(Request).Op != OpList {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(t.places[a], t.places[b]), cmp.Compare(writes(a), writes(b)))
	})
	var all []Operation
	for _, i := range order {
		all = append(all, Operation{ClientID: t.ops[i].ClientId, Request: t.ops[i].Input.(Request), Response: t.ops[i].Output.(Response)})
	}
	var err error
	if t.replayed, err = NewReplay(emptyModel(), all); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	for i := range all {
		if err := t.replayed.Validate(all[i].Request, all[i].Response); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
	}
	return nil
}

// watches holds every watch against the replay.
func (t *telling) watches() error {
	validator := NewWatchValidator(storage.APIObjectVersioner{}, t.replayed, getKey)
	for i := range t.Watches {
		request, response, ok := t.watch(&t.Watches[i])
		if !ok {
			continue
		}
		if err := validator.ValidateWatch(request, response); err != nil {
			return fmt.Errorf("watch %d on %s: %w", i, t.Watches[i].Node, err)
		}
	}
	return nil
}

func (t *telling) watch(w *history.Watch) (request WatchRequest, response WatchResponse, ok bool) {
	if w.Initial && !w.Bookmarks {
		t.counts.Unmarked++
		return request, response, false
	}
	if w.Initial && !slices.ContainsFunc(w.Events, func(e history.Event) bool { return e.InitialEnd }) {
		t.counts.Cut++
		return request, response, false
	}
	request.Key, request.Options = scope(w.Prefix, w.Selector)
	opts := &request.Options
	opts.Predicate.AllowWatchBookmarks = w.Bookmarks
	switch {
	case w.From > 0:
		opts.ResourceVersion = revision(t.Revision(w.From))
	case !w.Unset:
		opts.ResourceVersion = "0"
	}
	if w.Initial {
		opts.SendInitialEvents, opts.ResourceVersionMatch = &w.Initial, metav1.ResourceVersionMatchNotOlderThan
	} else if w.From == 0 {
		opts.SendInitialEvents = &w.Initial
	}
	response.Events = []watch.Event{}
	for i := range w.Events {
		response.Events = append(response.Events, t.event(&w.Events[i]))
	}
	t.counts.Watches++
	t.counts.Events += len(response.Events)
	return request, response, true
}

func (t *telling) event(e *history.Event) watch.Event {
	switch e.Type {
	case history.Error:
		return watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Code: int32(e.Code)}}
	case history.Bookmark:
		p := &example.Pod{}
		p.ResourceVersion = revision(t.Revision(e.Revision))
		if e.InitialEnd {
			p.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		}
		return watch.Event{Type: watch.Bookmark, Object: p}
	case history.Deleted:
		// The last state, at the revision of the change that ended it.
		return watch.Event{Type: watch.Deleted, Object: podOf(e.Key, e.Value, t.Revision(e.Revision))}
	}
	return watch.Event{Type: watch.EventType(e.Type), Object: podOf(e.Key, e.Value, t.revisionOf(e.Item))}
}
