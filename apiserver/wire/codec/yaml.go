package codec

import (
	"fmt"
	"net/http"
	"time"

	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/raftstore/mvcc"
	"go.yaml.in/yaml/v2"
)

// The library takes a hundred times as much memory as the text that becomes YAML, and half a second
// of a processor for the largest object. Nothing else about an answer costs that much, and seats do
// not know of it. So few are made at once, of the whole process; those that are small do not count.
// Clients of Kubernetes make YAML themselves.
const (
	yamlAtOnce = 2
	smallYAML  = 64 << 10
	// longestYAMLWait is for a place among them.
	longestYAMLWait = 10 * time.Second
)

var yamlPlaces = make(chan struct{}, yamlAtOnce)

// yamlOf is a JSON document as YAML, in the words of sigs.k8s.io/yaml; as an item of a list, if so
// wanted. Errors: 429 when there is no place, or the client has gone.
func yamlOf(r *http.Request, text []byte, item bool) ([]byte, error) {
	if len(text) > smallYAML {
		if err := takeYAMLPlace(r); err != nil {
			return nil, err
		}
		defer func() { <-yamlPlaces }()
	}
	v, _, err := parseJSON(stringOf(text))
	if err != nil {
		return nil, fmt.Errorf("convert to YAML: %w", err)
	}
	if item {
		v = []any{v}
	}
	return yaml.Marshal(v)
}

func takeYAMLPlace(r *http.Request) error {
	select {
	case yamlPlaces <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(longestYAMLWait)
	defer timer.Stop()
	select {
	case yamlPlaces <- struct{}{}:
		return nil
	case <-r.Context().Done():
	case <-timer.C:
	}
	return status.TooMany(1)
}

// yamlList is the list as YAML, item by item. Its fields are in the order of their names.
func (o *output) yamlList(m ListMeta, items []*mvcc.Version) error {
	o.head(m)
	v, _, err := parseJSON(string(append(o.buf, '}')))
	if err != nil {
		return fmt.Errorf("convert to YAML: %w", err)
	}
	rest := v.(map[string]any) // as head has made it
	begin, err := yaml.Marshal(map[string]any{"apiVersion": rest["apiVersion"]})
	if err != nil {
		return err
	}
	delete(rest, "apiVersion")
	end, err := yaml.Marshal(rest)
	if err != nil {
		return err
	}
	o.buf = append(o.buf[:0], begin...)
	if len(items) == 0 {
		o.buf = append(o.buf, "items: []\n"...)
	} else {
		o.buf = append(o.buf, "items:\n"...)
	}
	for _, v := range items {
		at := len(o.buf)
		if err := o.item(v); err != nil {
			return err
		}
		text, err := yamlOf(o.r, o.buf[at:], true)
		if err != nil {
			return err
		}
		o.buf = append(o.buf[:at], text...)
		if err := o.spill(); err != nil {
			return err
		}
	}
	o.buf = append(o.buf, end...)
	return nil
}
