package audit

import (
	"errors"
	"fmt"
	"github.com/google/uuid"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/quorate/quorate/internal/settingfile"
	internal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Config of a Log.
type Config struct {
	// PolicyFile is a Policy of audit.k8s.io/v1.
	PolicyFile string
	// Path of the file that is appended to; "-" is standard output.
	Path string
	// MaxSize in MiB above which the file is set aside under a name with its time.
	// Zero: never.
	MaxSize int
	// MaxBackups and MaxAge (days) bound the files that were set aside. Zero: all
	// are kept.
	MaxBackups, MaxAge int
	// QueueBytes bounds the events that wait to be written. Default 16 MiB.
	QueueBytes int64
	// Observe is told each event by its level and each that was lost. May be nil.
	Observe Observer
	// Log for failures to write. Default: slog.Default.
	Log *slog.Logger
}

// Observer counts. Safe for concurrent use; must not block.
type Observer interface {
	AuditLevel(level string)
	AuditEvent()
	AuditLost(reason string)
}

// Log is an open audit log. Safe for concurrent use.
type Log struct {
	policy  audit.PolicyRuleEvaluator
	queue   *queue
	observe Observer
}

// Open reads the policy, opens the file and begins to write. Both files are needed.
func Open(c Config) (*Log, error) {
	if c.PolicyFile == "" || c.Path == "" {
		return nil, errors.New("audit: a policy file and a log path are needed, both or neither")
	}
	text, err := settingfile.ReadOnce(c.PolicyFile, settingfile.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("audit-policy-file: %w", err)
	}
	p, err := policy.LoadPolicyFromBytes(text)
	if err != nil {
		return nil, fmt.Errorf("audit-policy-file: %s: %w", c.PolicyFile, err)
	}
	if c.Observe == nil {
		c.Observe = nobody{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	out, err := openFile(c.Path, int64(c.MaxSize)<<20, c.MaxBackups, time.Duration(c.MaxAge)*24*time.Hour)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	l := &Log{policy: policy.NewPolicyRuleEvaluator(p), observe: c.Observe}
	l.queue = newQueue(out, c.QueueBytes, c.Observe, c.Log)
	return l, nil
}

// Close writes what waits and closes the file. Events after it are dropped.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	return l.queue.close()
}

// Begin evaluates the policy for a request whose user is known and records its
// arrival. It returns nil for a request that is not audited.
func (l *Log) Begin(r *http.Request, id string, received time.Time, a *Attributes) *Event {
	if l == nil {
		return nil
	}
	rule := l.policy.EvaluatePolicyRule(a)
	l.observe.AuditLevel(string(rule.Level))
	if rule.Level == internal.LevelNone {
		return nil
	}
	e := &Event{log: l, omit: rule.OmitStages, omitManaged: rule.OmitManagedFields}
	e.event = auditv1.Event{
		TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: auditv1.SchemeGroupVersion.String()},
		Level:    auditv1.Level(rule.Level), AuditID: types.UID(id), RequestURI: r.URL.RequestURI(), Verb: a.Verb,
		User: userInfo(a.User), SourceIPs: sourceIPs(r), UserAgent: cut(r.UserAgent(), maxUserAgent),
		RequestReceivedTimestamp: metav1.NewMicroTime(received),
	}
	if a.Resource != "" {
		e.event.ObjectRef = &auditv1.ObjectReference{
			Resource: a.Resource, Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name,
			APIGroup: a.APIGroup, APIVersion: a.APIVersion,
		}
	}
	e.stage(auditv1.StageRequestReceived, received)
	return e
}

// BeginOwn is Begin for what the node does by itself to the object at a path: the event is
// the one that the request of a client would have.
func (l *Log) BeginOwn(path string, received time.Time, a *Attributes) *Event {
	if l == nil {
		return nil
	}
	r := &http.Request{URL: &url.URL{Path: path}, Header: http.Header{"User-Agent": {"quorate"}}}
	return l.Begin(r, uuid.NewString(), received, a)
}

type nobody struct{}

func (nobody) AuditLevel(string) {}
func (nobody) AuditEvent()       {}
func (nobody) AuditLost(string)  {}
