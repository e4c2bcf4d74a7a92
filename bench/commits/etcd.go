package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"golang.org/x/net/http2"
)

// etcd is a cluster of etcd, by its leader.
type etcd struct {
	url  string
	conn *http2.ClientConn
	size int
}

// findEtcd connects to the member that leads.
func findEtcd(ctx context.Context, urls []string, size int) (*etcd, error) {
	for _, u := range urls {
		leads, err := leads(ctx, u)
		if err != nil {
			return nil, fmt.Errorf("ask %s who leads: %w", u, err)
		}
		if !leads {
			continue
		}
		at, err := url.Parse(u)
		if err != nil {
			return nil, err
		}
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", at.Host)
		if err != nil {
			return nil, err
		}
		h2, err := (&http2.Transport{AllowHTTP: true, DisableCompression: true}).NewClientConn(c)
		return &etcd{u, h2, size}, err
	}
	return nil, errors.New("no member of etcd leads")
}

func call(ctx context.Context, method, u, sent string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, u, bytes.NewReader([]byte(sent)))
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.200q", answer.Status, b)
	}
	return b, err
}

func leads(ctx context.Context, u string) (bool, error) {
	b, err := call(ctx, "POST", u+"/v3/maintenance/status", "{}")
	if err != nil {
		return false, err
	}
	var status struct {
		Header struct {
			Member string `json:"member_id"`
		} `json:"header"`
		Leader string `json:"leader"`
	}
	err = json.Unmarshal(b, &status)
	return status.Leader != "" && status.Leader == status.Header.Member, err
}

func (e *etcd) leader() string { return e.url }

func (e *etcd) batches(ctx context.Context) (int64, error) {
	b, err := call(ctx, "GET", e.url+"/metrics", "")
	return batchesIn(string(b)), err
}

// open returns what puts a key: gRPC's /etcdserverpb.KV/Put, whose message has the key
// in field 1 and the value in field 2.
func (e *etcd) open(context.Context) (func(context.Context, int64) error, error) {
	at, err := url.Parse(e.url + "/etcdserverpb.KV/Put")
	if err != nil {
		return nil, err
	}
	header := http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	name := names()
	return func(ctx context.Context, i int64) error {
		key := []byte("/registry/configmaps/default/" + name(i))
		m := field(field(make([]byte, 5, 2048), 1, key), 2, body(name(i), e.size))
		binary.BigEndian.PutUint32(m[1:5], uint32(len(m)-5))
		r := (&http.Request{
			Method: "POST", URL: at, Host: at.Host, Header: header, Body: io.NopCloser(bytes.NewReader(m)), ContentLength: int64(len(m)),
		}).WithContext(ctx)
		answer, err := e.conn.RoundTrip(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return err
		}
		if status := answer.Trailer.Get("Grpc-Status") + answer.Header.Get("Grpc-Status"); status != "0" {
			return fmt.Errorf("put: status %s, %s", status, answer.Trailer.Get("Grpc-Message")+answer.Header.Get("Grpc-Message"))
		}
		return nil
	}, nil
}

// field appends a field of bytes to a protobuf message.
func field(m []byte, number byte, b []byte) []byte {
	m = binary.AppendUvarint(append(m, number<<3|2), uint64(len(b)))
	return append(m, b...)
}
