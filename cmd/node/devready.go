package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// waitReady waits until the nodes are ready: until the processes that were started, and
// no others, answer /readyz. It fails at once when one of them exits, with the reason.
func (c *devCluster) waitReady(ctx context.Context, nodes ...*devNode) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	for _, n := range nodes {
		for ours := false; ; {
			// The port may still be another process' whose exit is to come; once ours has
			// answered, no other can.
			if !ours {
				p, err := n.process(ctx, client)
				ours = err == nil && p.PID == n.PID
			}
			if ours {
				if unready, err := n.unready(ctx, client); err == nil && unready == "" {
					break
				}
			}
			if !n.running() {
				return fmt.Errorf("%s has exited%s", n.Name, n.why())
			}
			select {
			case <-ctx.Done():
				if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
					return context.Cause(ctx)
				}
				return fmt.Errorf("%s is not ready after %s%s", n.Name, readyWithin, n.why())
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}

// process asks a node which process it is.
func (n *devNode) process(ctx context.Context, client *http.Client) (p processInfo, err error) {
	_, body, err := n.get(ctx, client, processPath)
	if err == nil {
		err = json.Unmarshal(body, &p)
	}
	return p, err
}

// unready asks a node what it is not ready for: the names of the checks that fail, or "".
func (n *devNode) unready(ctx context.Context, client *http.Client) (string, error) {
	code, body, err := n.get(ctx, client, "/readyz")
	if err != nil || code == http.StatusOK {
		return "", err
	}
	var failed []string
	for line := range strings.Lines(string(body)) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ = strings.Cut(name, " ")
			failed = append(failed, name)
		}
	}
	if len(failed) == 0 {
		return http.StatusText(code), nil
	}
	return strings.Join(failed, ", "), nil
}

func (n *devNode) get(ctx context.Context, client *http.Client, path string) (code int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.API+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	return resp.StatusCode, body, err
}

// client trusts the cluster's CA and presents the administrator's certificate.
func (c *devCluster) client() (*http.Client, error) {
	config, err := c.tls()
	if err != nil {
		return nil, err
	}
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: config}}, nil
}

func (c *devCluster) tls() (*tls.Config, error) {
	ca, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s holds no certificate", c.CAFile)
	}
	cert, err := tls.LoadX509KeyPair(c.AdminCertFile, c.AdminKeyFile)
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}, nil
}

// Bounds of what an error shows of a log.
const (
	whyBytes = 64 << 10
	whyLines = 8
)

// why is the reason that the log of this run gives for its end, with the place of the
// log: the error that ended the process, or its last lines.
func (n *devNode) why() string {
	where := "\nIts log: " + rel(n.Log)
	f, err := os.Open(n.Log)
	if err != nil {
		return where
	}
	defer f.Close()
	from := n.logStart
	if info, err := f.Stat(); err == nil && info.Size()-from > whyBytes {
		from = info.Size() - whyBytes
	}
	b, err := io.ReadAll(io.NewSectionReader(f, from, whyBytes))
	if err != nil {
		return where
	}
	text := string(b)
	if from > n.logStart { // in the middle of a line
		_, text, _ = strings.Cut(text, "\n")
	}
	return reason(text) + where
}

// reason is what a log's end says: the process' last error, which may have several lines,
// after a colon, or the last lines below.
func reason(log string) string {
	log = strings.TrimRight(log, "\n")
	if i := strings.LastIndex("\n"+log, "\nerror: "); i >= 0 {
		return ": " + log[i+len("error: "):]
	}
	if log == "" {
		return ""
	}
	lines := strings.Split(log, "\n")
	lines = lines[max(0, len(lines)-whyLines):]
	return "; its last lines:\n  " + strings.Join(lines, "\n  ")
}
