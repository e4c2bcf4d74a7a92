package playground

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/process"
	"github.com/quorate/quorate/membership/pki"
)

// waitReady waits until the nodes are ready: until the processes that were started, and
// no others, answer /readyz. It fails at once when one of them exits, with the reason. A
// wait that lasts says on messages what for. If the nodes may be alone, those that serve, and cannot be
// ready before others run, are not waited for. Then it returns what is lacking.
func (c *cluster) waitReady(ctx context.Context, messages io.Writer, mayBeAlone bool, nodes ...*Node) (lack string, err error) {
	w, err := c.newWait(messages)
	if err != nil {
		return "", err
	}
	defer w.end()
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for _, n := range nodes {
		why, err := w.until(ctx, n, mayBeAlone)
		if err != nil {
			return "", err
		}
		lack = cmp.Or(lack, why)
	}
	return lack, nil
}

// Pauses of a wait.
const (
	lookEvery  = 20 * time.Millisecond  // at the node
	askEvery   = 250 * time.Millisecond // for the status of the cluster
	firstWord  = 2 * time.Second        // until a wait is spoken of
	repeatWord = 10 * time.Second       // though nothing has changed
)

// wait is a wait for nodes of a playground.
type wait struct {
	c          *cluster
	client     *http.Client
	messages   io.Writer
	reported   string
	reportedAt time.Time
}

func (c *cluster) newWait(messages io.Writer) (*wait, error) {
	client, err := c.client()
	return &wait{c: c, client: client, messages: messages}, err
}

func (w *wait) end() { w.client.CloseIdleConnections() }

// until waits until a node is ready; or, if it may be alone, until it serves and the
// cluster lacks others, and returns what.
func (w *wait) until(ctx context.Context, n *Node, mayBeAlone bool) (lack string, err error) {
	began, asked, ours := time.Now(), time.Time{}, false
	var missing string
	for {
		what := "it does not answer yet"
		// The port may still be another process' whose exit is to come; once ours has
		// answered, no other can.
		if !ours {
			p, err := n.process(ctx, w.client)
			if ours = err == nil && p.PID == n.PID; err == nil && !ours {
				what = fmt.Sprintf("another process has its port (pid %d)", p.PID)
			}
		}
		if ours {
			unready, err := n.unready(ctx, w.client)
			if err == nil && unready == "" {
				return "", nil
			}
			if err == nil {
				what = "not ready: " + unready
			}
			if err == nil && time.Since(asked) > askEvery {
				asked = time.Now()
				var lost bool
				lack, missing, lost = w.lacks(ctx, n)
				if lost {
					return "", lostData{n}
				}
				if lack != "" && mayBeAlone {
					return lack, nil
				}
			}
			if missing != "" {
				what += "; " + missing
			}
		}
		if !n.Running() {
			return "", exited{n, n.why()}
		}
		w.report(n, what, time.Since(began))
		select {
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return "", context.Cause(ctx)
			}
			return "", fmt.Errorf("%s is not ready after %s: %s%s", n.Name, readyWithin, what, n.why())
		case <-time.After(lookEvery):
		}
	}
}

// report says what a wait is for, once it lasts.
func (w *wait) report(n *Node, what string, sofar time.Duration) {
	text := n.Name + ": " + what
	if sofar < firstWord || text == w.reported && time.Since(w.reportedAt) < repeatWord || time.Since(w.reportedAt) < firstWord {
		return
	}
	w.reported, w.reportedAt = text, time.Now()
	fmt.Fprintf(w.messages, "waiting for %s (%.0f s so far)\n", text, sofar.Seconds())
}

// process asks a node which process it is.
func (n *Node) process(ctx context.Context, client *http.Client) (p process.Info, err error) {
	_, body, err := n.get(ctx, client, process.Path)
	if err == nil {
		err = json.Unmarshal(body, &p)
	}
	return p, err
}

// unready asks a node what it is not ready for: the names of the checks that fail, or "".
func (n *Node) unready(ctx context.Context, client *http.Client) (string, error) {
	code, body, err := n.get(ctx, client, "/readyz")
	if err != nil || code == http.StatusOK {
		return "", err
	}
	var failed []string
	for line := range strings.Lines(string(body)) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ = strings.Cut(name, " ")
			if name == "etcd" { // another name of a check that is told of
				continue
			}
			failed = append(failed, name)
		}
	}
	if len(failed) == 0 {
		return http.StatusText(code), nil
	}
	return strings.Join(failed, ", "), nil
}

func (n *Node) get(ctx context.Context, client *http.Client, path string) (code int, body []byte, err error) {
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
func (c *cluster) client() (*http.Client, error) {
	config, err := c.tls()
	if err != nil {
		return nil, err
	}
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: config}}, nil
}

// tls trusts the cluster's CA and presents the administrator's certificate. The kubeconfig has the
// same, but it may lie elsewhere, and be somebody else's by now.
func (c *cluster) tls() (*tls.Config, error) {
	var k pki.Kubeconfig
	for file, content := range map[string]*[]byte{c.CAFile: &k.CA, c.AdminCertFile: &k.Cert, c.AdminKeyFile: &k.Key} {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		*content = b
	}
	config, err := k.TLS()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.dir, err)
	}
	return config, nil
}

// Bounds of what an error shows of a log.
const (
	whyBytes = 64 << 10
	whyLines = 8
)

// why is the reason that the log of this run gives for its end, with the place of the
// log: the error that ended the process, or its last lines.
func (n *Node) why() string {
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
