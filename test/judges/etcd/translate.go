package etcd

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/validate"
	"go.uber.org/zap"

	"github.com/quorate/quorate/test/judges"
	"github.com/quorate/quorate/test/judges/history"
	"github.com/quorate/quorate/test/judges/history/dense"
)

// Judge has etcd's validators judge a history: an error says what they refused. What they
// panic at is refused as well: a revision that their replay does not have.
func Judge(h *history.History, patience time.Duration) (counts judges.Counts, err error) {
	d, err := dense.New(h)
	if err != nil {
		return counts, err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	t := &translation{History: d, lost: map[int]bool{}}
	reports := t.reports()
	result := validate.ValidateAndReturnVisualize(zap.NewNop(), validate.Config{ExpectRevisionUnique: true}, reports, t.persisted(), patience)
	if err = result.Error(); err != nil {
		err = fmt.Errorf("%w%s", err, t.stuck(&result.Linearization))
	}
	return t.counts, err
}

// stuck describes the operation at which the longest attempt of a linearization ended: of those
// that it left out, the one that returned first.
func (t *translation) stuck(l *validate.LinearizationResult) string {
	if l.Error() == nil {
		return ""
	}
	var longest []int
	for _, partial := range l.Info.PartialLinearizations() {
		for _, p := range partial {
			if len(p) > len(longest) {
				longest = p
			}
		}
	}
	// The patcher has taken out what did not happen.
	ops := slices.DeleteFunc(slices.Clone(t.ops), func(op porcupine.Operation) bool { return t.lost[op.ClientId] })
	first := -1
	for i := range ops {
		if !slices.Contains(longest, i) && (first < 0 || ops[i].Return < ops[first].Return) {
			first = i
		}
	}
	if first < 0 {
		return ""
	}
	return fmt.Sprintf("; of %d operations %d fit; the first that fits nowhere: %s", len(ops), len(longest), l.Model.DescribeOperation(ops[first].Input, ops[first].Output))
}

// translation is how a history is told.
type translation struct {
	*dense.History
	counts judges.Counts
	// start is added to all times: before it, what the log found there is written.
	start  int64
	client int
	ops    []porcupine.Operation
	lost   map[int]bool // clients whose write did not happen
}

// reports are the operations and the watches, as etcd's clients report them.
func (t *translation) reports() []report.ClientReport {
	t.counts.Runs, t.counts.Silent = 1, t.Silent
	before := t.Base()
	t.start = 2 * int64(before+1)
	t.tell(1, 2, rangeOf("", "", 0, 0), answer(1, nil, 0))
	for i := range t.Log[:before] {
		e := &t.Log[i]
		t.tell(int64(2*i)+3, int64(2*i)+4, put(e), model.EtcdResponse{Revision: int64(e.Revision), Txn: &model.TxnResponse{Results: []model.EtcdOperationResult{{}}}})
	}
	for i := range t.Ops {
		t.op(&t.Ops[i])
	}
	watches := report.ClientReport{ClientID: 0}
	for i := range t.Watches {
		if w, ok := t.watch(&t.Watches[i]); ok {
			watches.Watch = append(watches.Watch, w)
		}
	}
	t.atLast()
	t.counts.Operations = len(t.ops)
	watches.KeyValue = t.ops
	return []report.ClientReport{watches}
}

// atLast tells what the log itself is: a read of everything after the end. What nobody wrote
// shows there, and what was refused.
func (t *translation) atLast() {
	var end int64
	for i := range t.ops {
		// What never returned may have taken effect, so its call is before the end too.
		end = max(end, t.ops[i].Call)
		if t.ops[i].Return < math.MaxInt64 {
			end = max(end, t.ops[i].Return)
		}
	}
	at := uint64(len(t.Log)) + 1
	var kvs []model.KeyValue
	for _, key := range t.Keys() {
		if e := t.At(key, at); e != nil {
			kvs = append(kvs, keyValue(e))
		}
	}
	t.tell(end+1, end+2, rangeOf("", "", 0, 0), answer(at, kvs, len(kvs)))
}

// persisted are the writes that happened, in order.
func (t *translation) persisted() []model.EtcdRequest {
	var all []model.EtcdRequest
	for i := range t.Log {
		if e := &t.Log[i]; e.Deleted {
			all = append(all, txn(nil, deletion(e.Key), model.EtcdOperation{}))
		} else {
			all = append(all, put(e))
		}
	}
	return all
}

func put(e *dense.Entry) model.EtcdRequest {
	return txn(nil, putting(e.Key, e.Value), model.EtcdOperation{})
}

// txn is a transaction of at most one condition and one operation either way.
func txn(condition *model.EtcdCondition, then, otherwise model.EtcdOperation) model.EtcdRequest {
	r := &model.TxnRequest{OperationsOnSuccess: []model.EtcdOperation{then}}
	if condition != nil {
		r.Conditions = []model.EtcdCondition{*condition}
		r.OperationsOnFailure = []model.EtcdOperation{otherwise}
	}
	return model.EtcdRequest{Type: model.Txn, Txn: r}
}

func putting(key, value string) model.EtcdOperation {
	return model.EtcdOperation{Type: model.PutOperation, Put: model.PutOptions{Key: key, Value: model.ToValueOrHash(value)}}
}

func deletion(key string) model.EtcdOperation {
	return model.EtcdOperation{Type: model.DeleteOperation, Delete: model.DeleteOptions{Key: key}}
}

func reading(key string) model.EtcdOperation {
	return model.EtcdOperation{Type: model.RangeOperation, Range: model.RangeOptions{Start: key}}
}

// last is behind every key.
const last = "\xff"

// rangeOf is a read of all keys with a prefix that are behind one.
func rangeOf(prefix, after string, limit int, rev uint64) model.EtcdRequest {
	r := &model.RangeRequest{RangeOptions: model.RangeOptions{Start: prefix, End: prefix + last, Limit: int64(limit)}, Revision: int64(rev)}
	if after != "" {
		r.Start = after + "\x00"
	}
	return model.EtcdRequest{Type: model.Range, Range: r}
}

func answer(rev uint64, kvs []model.KeyValue, count int) model.EtcdResponse {
	if kvs == nil {
		kvs = []model.KeyValue{}
	}
	return model.EtcdResponse{Revision: int64(rev), Range: &model.RangeResponse{KVs: kvs, Count: int64(count)}}
}

// tell adds an operation with its answer. Each has a client of its own: a client that gave up
// on one goes on with the next.
func (t *translation) tell(call, end int64, request model.EtcdRequest, response model.EtcdResponse) {
	t.maybe(call, end, request, model.MaybeEtcdResponse{EtcdResponse: response})
}

func (t *translation) maybe(call, end int64, request model.EtcdRequest, response model.MaybeEtcdResponse) {
	t.client++
	t.ops = append(t.ops, porcupine.Operation{ClientId: t.client, Input: request, Call: call, Output: response, Return: end, Metadata: response})
}

func (t *translation) at(instant int64) int64 {
	if instant == dense.Forever {
		return math.MaxInt64
	}
	return instant + t.start
}

// op tells an operation.
func (t *translation) op(o *dense.Op) {
	call, end := t.at(o.Call), t.at(o.Return)
	if !dense.IsWrite(o.Kind) {
		request, response := t.read(o)
		t.tell(call, end, request, response)
		return
	}
	request, done := t.write(o)
	switch {
	case o.Outcome == history.Refused:
		t.tell(call, end, request, t.refusal(o, !done))
	case o.Outcome == history.Unknown && !dense.IsDelete(o.Kind):
		// etcd's own patcher looks for the value among what was persisted.
		t.maybe(call, end, request, model.MaybeEtcdResponse{Error: o.Reason + "?"})
		t.lost[t.client] = o.State == 0
	case o.State > 0 && o.Outcome == history.Unknown:
		t.maybe(call, t.at(t.Until(o.State)), request, model.MaybeEtcdResponse{Persisted: true, PersistedRevision: int64(o.State)})
	case o.Outcome == history.Unknown: // no deletion is left that it can have caused
	case o.State == 0: // acknowledged, without a revision, and the log has none
		t.maybe(call, end, request, model.MaybeEtcdResponse{Persisted: true})
	default:
		result := model.EtcdOperationResult{}
		if dense.IsDelete(o.Kind) {
			result.Deleted = 1
		}
		t.tell(call, end, request, model.EtcdResponse{Revision: int64(o.State), Txn: &model.TxnResponse{Failure: !done, Results: []model.EtcdOperationResult{result}}})
	}
}

// write is the transaction that Kubernetes makes of a write on etcd; done says which of its
// branches is the one that writes. An update and a delete of whatever is there write if there
// is something: etcd's conditions only ask for equal revisions.
func (t *translation) write(o *dense.Op) (request model.EtcdRequest, done bool) {
	change := putting(o.Key, o.Value)
	if dense.IsDelete(o.Kind) {
		change = deletion(o.Key)
	}
	absent := &model.EtcdCondition{Key: o.Key}
	switch {
	case o.Kind == history.Create:
		return txn(absent, change, reading(o.Key)), true
	case dense.Conditional(o.Kind):
		return txn(&model.EtcdCondition{Key: o.Key, ExpectedRevision: t.modRevision(o.Key, o.Precondition)}, change, reading(o.Key)), true
	}
	return txn(absent, reading(o.Key), change), false
}

// modRevision is that of a key's version; 1, which no version has, if it never had it.
func (t *translation) modRevision(key string, resourceVersion uint64) int64 {
	if e := t.Wrote(resourceVersion); e != nil && e.Key == key {
		return int64(e.Revision)
	}
	return 1
}

// refusal is what a refused write found: nothing, or what stood there in its place in order.
func (t *translation) refusal(o *dense.Op, branch bool) model.EtcdResponse {
	found := model.EtcdOperationResult{RangeResponse: model.RangeResponse{KVs: []model.KeyValue{}}}
	switch e := t.At(o.Key, o.Place); {
	case o.Code == http.StatusNotFound:
	case e != nil:
		found.KVs, found.Count = append(found.KVs, keyValue(e)), 1
	case o.Kind == history.Create:
		found.Count = 1 // it was there, so it was told; nothing was
	}
	return model.EtcdResponse{Revision: int64(o.Place), Txn: &model.TxnResponse{Failure: !branch, Results: []model.EtcdOperationResult{found}}}
}

func keyValue(e *dense.Entry) model.KeyValue {
	return model.KeyValue{Key: e.Key, ValueRevision: valueRevision(e, e.Value)}
}

func valueRevision(e *dense.Entry, value string) model.ValueRevision {
	return model.ValueRevision{Value: model.ToValueOrHash(value), ModRevision: int64(e.Revision), Version: int64(e.Version)}
}

// item is an object as a client saw it. The version, which no client of Kubernetes sees, is
// that of the log.
func (t *translation) item(it history.Item) model.KeyValue {
	if e := t.Wrote(it.Revision); e != nil && e.Key == it.Key {
		return model.KeyValue{Key: it.Key, ValueRevision: valueRevision(e, it.Value)}
	}
	return model.KeyValue{Key: it.Key, ValueRevision: model.ValueRevision{Value: model.ToValueOrHash(it.Value)}}
}

func (t *translation) items(items []history.Item) (kvs []model.KeyValue) {
	for _, it := range items {
		kvs = append(kvs, t.item(it))
	}
	slices.SortStableFunc(kvs, func(a, b model.KeyValue) int { return strings.Compare(a.Key, b.Key) })
	return kvs
}

// read is a get or a list.
func (t *translation) read(o *dense.Op) (model.EtcdRequest, model.EtcdResponse) {
	var at uint64
	switch {
	case o.Mode == history.Exact:
		at = t.Revision(o.Asked)
	case !dense.Fresh(o.Op):
		at = o.State
	}
	kvs := t.items(o.Items)
	if o.Kind == history.Get {
		return model.EtcdRequest{Type: model.Range, Range: &model.RangeRequest{RangeOptions: model.RangeOptions{Start: o.Key}, Revision: int64(at)}}, answer(o.Place, kvs, len(kvs))
	}
	// Of what is left behind a page, clients know whether there is any.
	count := len(kvs)
	if o.More {
		count = max(t.Live(o.Prefix, o.After, o.State), len(kvs)+1)
	}
	return rangeOf(o.Prefix, o.After, o.Limit, at), answer(o.Place, kvs, count)
}

// watch tells a watch: initial events are a read of the revision that ends them, and a watch
// from there.
func (t *translation) watch(w *history.Watch) (op model.WatchOperation, ok bool) {
	events, from := w.Events, w.From
	switch {
	case w.Selector != "":
		t.counts.Selected++
		return op, false
	case w.Initial && !w.Bookmarks:
		t.counts.Unmarked++
		return op, false
	case w.Initial:
		end := slices.IndexFunc(events, func(e history.Event) bool { return e.InitialEnd })
		if end < 0 {
			t.counts.Cut++
			return op, false
		}
		t.initial(w, end)
		from, events = events[end].Revision, events[end+1:]
	}
	op.Request = model.WatchRequest{Key: w.Prefix, WithPrefix: true, WithPrevKV: true, WithProgressNotify: w.Bookmarks}
	if from > 0 {
		op.Request.Revision = int64(t.Revision(from)) + 1
	}
	for i := range events {
		e := &events[i]
		r := model.WatchResponse{Revision: int64(t.Revision(e.Revision)), Time: e.At}
		switch e.Type {
		case history.Error:
			continue
		case history.Bookmark:
			r.IsProgressNotify = true
		default:
			r.Events = []model.WatchEvent{t.event(e)}
			t.counts.Events++
		}
		op.Responses = append(op.Responses, r)
	}
	t.counts.Watches++
	return op, true
}

// initial tells the initial events: without a resourceVersion they are a read of the newest
// state, otherwise of the one that they told.
func (t *translation) initial(w *history.Watch, end int) {
	var items []history.Item
	for _, e := range w.Events[:end] {
		if e.Type != history.Error {
			items = append(items, e.Item)
		}
	}
	kvs, at := t.items(items), t.Revision(w.Events[end].Revision)
	call, place, request := dense.Called(w.Begin), at, rangeOf(w.Prefix, "", 0, at)
	if w.Unset {
		request.Range.Revision = 0
	} else {
		place = max(at, t.Least(call))
	}
	t.tell(t.at(call), t.at(dense.Returned(w.Events[end].At)), request, answer(place, kvs, len(kvs)))
}

func (t *translation) event(e *history.Event) model.WatchEvent {
	x := model.WatchEvent{PersistedEvent: model.PersistedEvent{Revision: int64(t.Revision(e.Revision)), Event: model.Event{Type: model.PutOperation, Key: e.Key}}}
	if e.Type != history.Deleted {
		x.Value, x.IsCreate = model.ToValueOrHash(e.Value), e.Type == history.Added
		return x
	}
	x.Type = model.DeleteOperation
	if v := t.Wrote(e.Revision); v != nil && v.Before >= 0 {
		before := valueRevision(&t.Log[v.Before], e.Value)
		x.PrevValue = &before
	}
	return x
}
