package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"
)

// etcd's own protocol, as far as the load programs speak it: gRPC's calls of one message and
// one answer, encoded by hand.

// grpcHeader is that of a call. It is shared and must not be changed.
var grpcHeader = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}

// EtcdPut is the message that puts a key, EtcdPutAt one that puts it if its revision is
// still at, for EtcdKV's Put and Txn.
func EtcdPut(key, value []byte) []byte {
	m := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), key)
	return protowire.AppendBytes(protowire.AppendTag(m, 2, protowire.BytesType), value)
}

// EtcdPutAt is a transaction: the put, on the condition that the key's revision is at.
func EtcdPutAt(key, value []byte, at uint64) []byte {
	compare := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 2) // target: MOD; the result, EQUAL, is 0
	compare = protowire.AppendBytes(protowire.AppendTag(compare, 3, protowire.BytesType), key)
	compare = protowire.AppendVarint(protowire.AppendTag(compare, 6, protowire.VarintType), at)
	put := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), EtcdPut(key, value))
	m := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), compare)
	return protowire.AppendBytes(protowire.AppendTag(m, 2, protowire.BytesType), put)
}

// EtcdRange is the message that reads the keys from one on, up to end and not more than
// limit if that is not 0, or one key if end is nil. A serializable one asks no other member.
func EtcdRange(key, end []byte, limit int, serializable bool) []byte {
	m := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), key)
	if end != nil {
		m = protowire.AppendBytes(protowire.AppendTag(m, 2, protowire.BytesType), end)
	}
	if limit > 0 {
		m = protowire.AppendVarint(protowire.AppendTag(m, 3, protowire.VarintType), uint64(limit))
	}
	if serializable {
		m = protowire.AppendVarint(protowire.AppendTag(m, 7, protowire.VarintType), 1)
	}
	return m
}

// Etcd calls a method of etcdserverpb.KV, and reads the answer's message into buf.
func (c *Conn) Etcd(ctx context.Context, method string, message []byte, buf *bytes.Buffer) error {
	body := binary.BigEndian.AppendUint32(make([]byte, 1, 5+len(message)), uint32(len(message)))
	resp, err := c.Open(ctx, Request{Method: http.MethodPost, Path: "/etcdserverpb.KV/" + method, Header: grpcHeader, Body: append(body, message...)})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	buf.Reset()
	if _, err := buf.ReadFrom(resp.Body); err != nil {
		return err
	}
	if status := resp.Trailer.Get("Grpc-Status") + resp.Header.Get("Grpc-Status"); status != "0" {
		return fmt.Errorf("etcd %s: status %s, %s", method, status, resp.Trailer.Get("Grpc-Message")+resp.Header.Get("Grpc-Message"))
	}
	if head := buf.Next(5); len(head) != 5 || head[0] != 0 || int(binary.BigEndian.Uint32(head[1:])) != buf.Len() {
		return fmt.Errorf("etcd %s: %w", method, errEtcd)
	}
	return nil
}

var errEtcd = errors.New("an answer that is not etcd's")

// EtcdAnswer is what the load programs look at in an answer.
type EtcdAnswer struct {
	Revision   uint64 // of the store when it answered
	Succeeded  bool   // of a transaction
	Count      uint64 // of keys in the range, whatever the limit
	ModifiedAt uint64 // revision of the first key
}

// ReadEtcd reads an answer of Put, Txn, Range or DeleteRange. The fields of each that are
// not the same have other numbers or other types.
func ReadEtcd(method string, raw []byte) (a EtcdAnswer, err error) {
	err = fields(raw, func(number protowire.Number, v uint64, b []byte) error {
		switch {
		case number == 1 && b != nil:
			return fields(b, func(number protowire.Number, v uint64, _ []byte) error {
				if number == 3 {
					a.Revision = v
				}
				return nil
			})
		case method == "Txn" && number == 2:
			a.Succeeded = v == 1
		case method == "Range" && number == 4:
			a.Count = v
		case method == "Range" && number == 2 && a.ModifiedAt == 0:
			return fields(b, func(number protowire.Number, v uint64, _ []byte) error {
				if number == 3 {
					a.ModifiedAt = v
				}
				return nil
			})
		}
		return nil
	})
	if err == nil && a.Revision == 0 {
		err = errEtcd
	}
	return a, err
}

// fields calls f with each field of a message: the number, and the bytes where it has some.
func fields(raw []byte, f func(number protowire.Number, v uint64, b []byte) error) error {
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return errEtcd
		}
		raw = raw[n:]
		var v uint64
		var b []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(raw)
		case protowire.BytesType:
			b, n = protowire.ConsumeBytes(raw)
		default:
			n = protowire.ConsumeFieldValue(number, kind, raw)
		}
		if n < 0 {
			return errEtcd
		}
		raw = raw[n:]
		if err := f(number, v, b); err != nil {
			return err
		}
	}
	return nil
}
