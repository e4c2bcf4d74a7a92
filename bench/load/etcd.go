package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/quorate/quorate/bench/client"
)

// The objects as plain keys of etcd: what is an object's body elsewhere is a key's value.

// prefix is where a namespace's keys are, and end is behind them.
func prefix(namespace string) string { return "/quorate-bench/" + namespace + "/" }
func end(prefix string) []byte       { return []byte(prefix[:len(prefix)-1] + "0") }

var errChanged = errors.New("etcd: the key has another revision than it was given")

func (b *bench) operateEtcd(ctx context.Context, v verb, w, i int, buf *bytes.Buffer) error {
	key := []byte(prefix(b.namespace) + name(i))
	switch v {
	case create:
		if i >= b.Objects {
			_, err := b.etcd(ctx, w, "Put", client.EtcdPut([]byte(prefix(b.elsewhere())+name(i)), object(b.elsewhere(), i, b.round, "")), buf)
			return err
		}
		return b.putEtcd(ctx, w, i, "Put", client.EtcdPut(key, b.bodies.created[i]), buf)
	case get, get0:
		a, err := b.etcd(ctx, w, "Range", client.EtcdRange(key, nil, 0, v == get0), buf)
		if err == nil && a.Count != 1 {
			err = fmt.Errorf("etcd: there is no key %s", key)
		}
		return err
	case list, list0:
		return b.listEtcd(ctx, w, 0, v == list0, buf)
	case page:
		return b.listEtcd(ctx, w, pageSize, false, buf)
	case update:
		b.bodies.times[i]++
		at, err := strconv.ParseUint(string(b.versions[i]), 10, 64)
		if err != nil {
			return fmt.Errorf("the revision of %s is %q: %w", key, b.versions[i], err)
		}
		return b.putEtcd(ctx, w, i, "Txn", client.EtcdPutAt(key, b.bodies.turns[b.bodies.times[i]%2][i].at(nil), at), buf)
	}
	return fmt.Errorf("etcd has no %s of plain keys", v)
}

func (b *bench) etcd(ctx context.Context, w int, method string, message []byte, buf *bytes.Buffer) (client.EtcdAnswer, error) {
	if err := b.conn(w).Etcd(ctx, method, message, buf); err != nil {
		return client.EtcdAnswer{}, err
	}
	return client.ReadEtcd(method, buf.Bytes())
}

// putEtcd makes a write of object i and remembers its new revision.
func (b *bench) putEtcd(ctx context.Context, w, i int, method string, message []byte, buf *bytes.Buffer) error {
	a, err := b.etcd(ctx, w, method, message, buf)
	if err == nil && method == "Txn" && !a.Succeeded {
		err = errChanged
	}
	if err == nil {
		b.versions[i] = strconv.AppendUint(b.versions[i][:0], a.Revision, 10)
	}
	return err
}

func (b *bench) listEtcd(ctx context.Context, w, limit int, serializable bool, buf *bytes.Buffer) error {
	p := prefix(b.namespace)
	if err := b.conn(w).Etcd(ctx, "Range", client.EtcdRange([]byte(p), end(p), limit, serializable), buf); err != nil {
		return err
	}
	expected := b.Objects
	if limit > 0 {
		expected = min(limit, expected)
	}
	if buf.Len() < expected*valueSize {
		return fmt.Errorf("a range of %d keys has only %d bytes", expected, buf.Len())
	}
	return nil
}

func (b *bench) learnEtcd(ctx context.Context, w, i int, buf *bytes.Buffer) error {
	a, err := b.etcd(ctx, w, "Range", client.EtcdRange([]byte(prefix(b.namespace)+name(i)), nil, 0, false), buf)
	if err == nil && a.ModifiedAt == 0 {
		err = fmt.Errorf("etcd: there is no key %s of %s", name(i), b.namespace)
	}
	if err == nil {
		b.versions[i] = strconv.AppendUint(b.versions[i][:0], a.ModifiedAt, 10)
	}
	return err
}

// cleanEtcd deletes the keys of a namespace.
func (b *bench) cleanEtcd(ctx context.Context, namespace string) error {
	p := prefix(namespace)
	var buf bytes.Buffer
	_, err := b.etcd(ctx, 0, "DeleteRange", client.EtcdPut([]byte(p), end(p)), &buf) // its fields 1 and 2 are the key and the end
	return err
}
