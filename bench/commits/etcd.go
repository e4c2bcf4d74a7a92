package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/quorate/quorate/bench/client"
)

// etcd is a cluster of etcd, by its leader.
type etcd struct {
	url  string
	conn *client.Conn
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
		c, err := client.Dial(ctx, at, nil)
		return &etcd{u, c, size}, err
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

// open returns what puts a key.
func (e *etcd) open(context.Context) (func(context.Context, int64) error, error) {
	name := names()
	return func(ctx context.Context, i int64) error {
		var answer bytes.Buffer
		return e.conn.Etcd(ctx, "Put", client.EtcdPut([]byte("/registry/configmaps/default/"+name(i)), body(name(i), e.size)), &answer)
	}, nil
}
