package storage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/quorate/quorate/apiserver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// get sends a request and returns an answer that is a success. The caller closes
// its body. Other answers are the errors that clients see.
func (n *node) get(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.http.URL+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	w, err := n.http.Client().Do(r)
	if err != nil {
		return nil, err
	}
	if w.StatusCode == http.StatusOK {
		return w, nil
	}
	defer w.Body.Close()
	var s metav1.Status
	if err := json.NewDecoder(w.Body).Decode(&s); err != nil {
		return nil, fmt.Errorf("%s %s: %w", w.Status, path, err)
	}
	refused := &apierrors.StatusError{ErrStatus: s}
	if at, err := strconv.ParseUint(w.Header.Get(apiserver.HeaderIndex), 10, 64); err == nil {
		return nil, refusal{refused, at}
	}
	return nil, refused
}

// refusal is an error that says which state it tells of.
type refusal struct {
	*apierrors.StatusError
	at uint64
}

// Unwrap gives apierrors.IsNotFound and the like what they look for.
func (r refusal) Unwrap() error { return r.StatusError }

func (n *node) body(ctx context.Context, path string, query url.Values) ([]byte, error) {
	w, err := n.get(ctx, path, query)
	if err != nil {
		return nil, err
	}
	defer w.Body.Close()
	return io.ReadAll(w.Body)
}

// Get implements storage.Interface.
func (a *adapter) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	p, err := a.object(key)
	if err != nil {
		return err
	}
	query := url.Values{}
	asked, err := a.ask(opts.ResourceVersion)
	if err != nil {
		return err
	}
	if asked != "" {
		query.Set("resourceVersion", asked)
	}
	text, err := a.reader().body(ctx, a.path(p, true), query)
	switch {
	case apierrors.IsNotFound(err) && opts.IgnoreNotFound:
		return zero(out)
	case apierrors.IsNotFound(err):
		var r refusal
		errors.As(err, &r)
		return a.notFound(key, r.at)
	case err != nil:
		return err
	}
	return a.into(text, out)
}

// GetList implements storage.Interface.
func (a *adapter) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	p, err := a.place(key, opts.Recursive)
	if err != nil {
		return err
	}
	query, err := a.query(p, opts)
	if err != nil {
		return err
	}
	if opts.Predicate.Limit != 0 {
		query.Set("limit", strconv.FormatInt(opts.Predicate.Limit, 10))
	}
	if opts.Predicate.Continue != "" {
		query.Set("continue", translate(opts.Predicate.Continue, func(start string) string { return a.inTable(p) + strings.TrimPrefix(start, "/") }))
	}
	text, err := a.reader().body(ctx, a.path(p, false), query)
	if status := (*apierrors.StatusError)(nil); errors.As(err, &status) {
		status.ErrStatus.Continue = translate(status.ErrStatus.Continue, a.relative(p))
	}
	if err != nil {
		return err
	}
	return a.fill(ctx, p, text, out)
}

// fill reads the answer to a list. Upstream's codec has no conversion of the
// example's list, only of its items.
func (a *adapter) fill(ctx context.Context, p place, text []byte, out runtime.Object) error {
	pods, ok := out.(*example.PodList)
	if !ok {
		return fmt.Errorf("a list of type %T", out)
	}
	var list struct {
		metav1.ListMeta `json:"metadata"`
		Items           []json.RawMessage
	}
	err := json.Unmarshal(text, &list)
	if err != nil {
		return fmt.Errorf("decode list: %w", err)
	}
	*pods = example.PodList{ListMeta: list.ListMeta, Items: make([]example.Pod, len(list.Items))}
	pods.Continue = translate(list.Continue, a.relative(p))
	if pods.ResourceVersion, err = a.told(pods.ResourceVersion); err != nil {
		return err
	}
	for i, item := range list.Items {
		if _, err := a.look(ctx, item); err != nil {
			return err
		}
		if err := runtime.DecodeInto(objects, a.typed(item), &pods.Items[i]); err != nil {
			return fmt.Errorf("decode %s: %w", item, err)
		}
		if err := a.tell(&pods.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// typed gives an item of a list the kind and version that it has in a list only
// by being there.
func (a *adapter) typed(item []byte) []byte {
	return append(fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, a.res.Kind, a.res.GroupVersion()), bytes.TrimPrefix(item, []byte("{"))...)
}

func (a *adapter) inTable(p place) string {
	if p.namespace == "" {
		return ""
	}
	return p.namespace + "/"
}

func (a *adapter) relative(p place) func(string) string {
	return func(start string) string { return strings.TrimPrefix(start, a.inTable(p)) }
}

// query are the parameters that lists and watches have in common.
func (a *adapter) query(p place, opts storage.ListOptions) (url.Values, error) {
	query := url.Values{}
	set := func(name, v string) {
		if v != "" {
			query.Set(name, v)
		}
	}
	asked, err := a.ask(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	set("resourceVersion", asked)
	set("resourceVersionMatch", string(opts.ResourceVersionMatch))
	if s := opts.Predicate.Label; s != nil {
		set("labelSelector", s.String())
	}
	var all []fields.Selector
	if s := opts.Predicate.Field; s != nil && !s.Empty() {
		all = append(all, s)
	}
	// A single object is selected by its name; no object has an empty one.
	if p.name != "" || p.nothing {
		all = append(all, fields.OneTermEqualSelector("metadata.name", p.name))
	}
	if len(all) > 0 {
		set("fieldSelector", fields.AndSelectors(all...).String())
	}
	return query, nil
}
