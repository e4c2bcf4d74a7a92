package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"
)

// auditPolicy is that of both servers: what admission said of a request is in the annotations
// of its event.
const auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}`

// auditLog is the audit log of a server, as far as it is read.
type auditLog struct {
	path   string
	read   int64
	events map[string]map[string]string // annotations by audit IDs
}

// annotations awaits the event of a request, and returns what admission said.
func (l *auditLog) annotations(ctx context.Context, id string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for l.events[id] == nil {
		if err := l.more(); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the audit event %q did not come within %s", id, patience)
		case <-time.After(2 * time.Millisecond):
		}
	}
	said := map[string]string{}
	for name, value := range l.events[id] {
		// Who may ask is not admission's, and the others depend on the time.
		if !strings.HasPrefix(name, "authorization.k8s.io/") && !strings.HasPrefix(name, "apiserver.latency.k8s.io/") {
			said[name] = normalText(value)
		}
	}
	return said, nil
}

// more reads the events that were written since.
func (l *auditLog) more() error {
	f, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	raw := make([]byte, info.Size()-l.read)
	n, err := f.ReadAt(raw, l.read)
	if err != nil {
		return err
	}
	whole := raw[:n][:bytes.LastIndexByte(raw[:n], '\n')+1]
	l.read += int64(len(whole))
	for line := range bytes.Lines(whole) {
		var e struct {
			AuditID     string
			Annotations map[string]string
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("the audit log: %w", err)
		}
		if l.events == nil {
			l.events = map[string]map[string]string{}
		}
		l.events[e.AuditID] = make(map[string]string, len(e.Annotations)) // also of an event without any
		maps.Copy(l.events[e.AuditID], e.Annotations)
	}
	return nil
}
