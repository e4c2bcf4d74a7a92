package localproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/quorate/quorate/internal/hostport"
	"github.com/quorate/quorate/internal/settingfile"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	discovery "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Members keeps a Balancer's nodes as the Service kubernetes has them, and keeps the list in a file.
type Members struct {
	// Kubeconfig is read again at each try: a kubelet writes it when it has joined.
	Kubeconfig string
	// File is where the list is kept; empty: nowhere.
	File     string
	Balancer *Balancer
	Log      *slog.Logger

	itself int // how many addresses of this proxy itself were left out last
}

const (
	// maxFile bounds the file, and maxSlices the EndpointSlices of the Service.
	maxFile   = 64 << 10
	maxSlices = 64
	// again is how long it takes to try again at first, and at most.
	again, againMax = time.Second, 30 * time.Second
	// watchTime is how long one watch lasts, so that none is waited for in vain.
	watchTime = 5 * time.Minute
	// fileVersion of memberFile.
	fileVersion = 1
)

// memberFile is the file's form.
type memberFile struct {
	Version int      `json:"version"`
	Nodes   []string `json:"nodes"`
}

// ReadMembers returns the nodes that were kept in a file, none if it does not exist.
func ReadMembers(file string) ([]string, error) {
	text, err := settingfile.Read(file, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var kept memberFile
	if err := json.Unmarshal(text, &kept); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if kept.Version != fileVersion {
		return nil, fmt.Errorf("%s: version %d: this program knows %d", file, kept.Version, fileVersion)
	}
	if len(kept.Nodes) > maxNodes {
		return nil, fmt.Errorf("%s: %d nodes: at most %d are allowed", file, len(kept.Nodes), maxNodes)
	}
	for _, n := range kept.Nodes {
		if err := hostport.Check(n, true); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return kept.Nodes, nil
}

// write replaces the file if the list has changed.
func (m *Members) write(nodes []string) error {
	if m.File == "" {
		return nil
	}
	text, err := json.Marshal(memberFile{fileVersion, nodes})
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(m.File); err == nil && bytes.Equal(old, text) {
		return nil
	}
	temporary, err := os.CreateTemp(filepath.Dir(m.File), filepath.Base(m.File)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // it is gone, or of no use
	if _, err = temporary.Write(text); err == nil {
		err = temporary.Sync()
	}
	if err = errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), m.File)
}

// Run follows the list until ctx ends.
func (m *Members) Run(ctx context.Context) {
	wait, last := again, ""
	for ctx.Err() == nil {
		began := time.Now()
		err := m.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > againMax {
			wait, last = again, ""
		}
		if err != nil {
			if err.Error() != last { // said once, not every time
				m.Log.Warn("cannot read the EndpointSlices of the Service kubernetes, going on with the nodes that are known", "err", err)
				last = err.Error()
			}
		}
		// Hosts that have lost the same node do not all come at once.
		if !sleep(ctx, wait/2+rand.N(wait/2)) {
			return
		}
		wait = min(2*wait, againMax)
	}
}

// follow reads the list once, and changes of it until the watch ends.
func (m *Members) follow(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", m.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	config.UserAgent = "quorate-proxy"
	secured, err := rest.TLSConfigFor(config)
	if err != nil {
		return err
	}
	// Not rest.HTTPClientFor, which keeps every transport that has a dialer. The kubeconfig may well lead to
	// this very program: its certificates are meant, and its server's name.
	transport := &http.Transport{TLSClientConfig: secured, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, DialContext: m.Balancer.Dial, MaxResponseHeaderBytes: 64 << 10}
	defer transport.CloseIdleConnections()
	wrapped, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return err
	}
	typed, err := discovery.NewForConfigAndClient(config, &http.Client{Transport: wrapped})
	if err != nil {
		return err
	}
	slicesOf := typed.EndpointSlices(metav1.NamespaceDefault)
	selector := discoveryv1.LabelServiceName + "=kubernetes"
	listing, cancel := context.WithTimeout(ctx, againMax)
	list, err := slicesOf.List(listing, metav1.ListOptions{LabelSelector: selector, Limit: maxSlices})
	cancel()
	if err != nil {
		return err
	}
	all := map[string]*discoveryv1.EndpointSlice{}
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	m.take(all)
	seconds := int64(watchTime / time.Second)
	w, err := slicesOf.Watch(ctx, metav1.ListOptions{LabelSelector: selector, ResourceVersion: list.ResourceVersion, TimeoutSeconds: &seconds})
	if err != nil {
		return err
	}
	defer w.Stop()
	overdue := time.NewTimer(watchTime + againMax)
	defer overdue.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-overdue.C:
			return errors.New("the watch does not end")
		case e, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			slice, ok := e.Object.(*discoveryv1.EndpointSlice)
			switch {
			case !ok:
				return fmt.Errorf("the watch ended with %s", e.Type)
			case e.Type == watch.Deleted:
				delete(all, slice.Name)
			case len(all) < maxSlices || all[slice.Name] != nil:
				all[slice.Name] = slice
			}
			m.take(all)
		}
	}
}

// take gives the Balancer the nodes that are in slices.
func (m *Members) take(all map[string]*discoveryv1.EndpointSlice) {
	named := addresses(all)
	nodes := m.Balancer.others(named)
	if left := len(named) - len(nodes); left != m.itself {
		if m.itself = left; left > 0 {
			m.Log.Warn("left out this proxy's own address, which is among those of the Service kubernetes", "nodes", named)
		}
	}
	if len(nodes) == 0 {
		return // there is nothing better to try
	}
	if !slices.Equal(nodes, m.Balancer.Nodes()) {
		m.Log.Info("the nodes are others", "nodes", nodes)
		m.Balancer.SetNodes(nodes)
	}
	if err := m.write(nodes); err != nil {
		m.Log.Warn("cannot keep the nodes in the file", "err", err)
	}
}

// addresses are those of all endpoints, sorted; whether they are ready is found out by probes.
func addresses(all map[string]*discoveryv1.EndpointSlice) (out []string) {
	for _, s := range all {
		for _, p := range s.Ports {
			if p.Port == nil || p.Name == nil || *p.Name != "https" {
				continue
			}
			for _, e := range s.Endpoints {
				for _, a := range e.Addresses {
					out = append(out, net.JoinHostPort(a, strconv.Itoa(int(*p.Port))))
				}
			}
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), maxNodes)]
}
