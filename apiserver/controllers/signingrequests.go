package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var requestsGVR = certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")

// requests follows CertificateSigningRequests, and writes what a controller decides about each.
type requests struct {
	base
	res         *kinds.Resource
	subresource string
	// decide changes the status of a request, and reports whether it did. look asks for another call
	// after a period, although the request has not changed. It is called again for each newer
	// version, also while a decision is written.
	decide func(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) (changed, look bool)
	// decided says in the log what was written.
	decided func(csr *certificatesv1.CertificateSigningRequest)
	// settled are the versions about which nothing is to be decided any more, by key.
	settled map[string]*mvcc.Version
}

// follow calls decide for each CertificateSigningRequest when it comes or changes, until ctx
// ends; every period for those that it asks to look at again.
func (q *requests) follow(ctx context.Context, period time.Duration) error {
	q.res = q.objects.Kinds().Lookup(requestsGVR)
	if q.res == nil {
		return errors.New("the registry has no certificate signing requests")
	}
	return q.onChange(ctx, []string{q.res.Table()}, period, func() (again bool, _ error) { return q.step(ctx) })
}

func (q *requests) step(ctx context.Context) (again bool, _ error) {
	versions, err := q.objects.Range(q.res.Table(), "")
	if err != nil {
		return false, fmt.Errorf("list certificate signing requests: %w", err)
	}
	settled := make(map[string]*mvcc.Version, len(versions))
	for _, v := range versions {
		if q.settled[v.Key] == v {
			settled[v.Key] = v
			continue
		}
		csr, err := requestOf(v)
		if err != nil {
			q.reports.failed("a certificate signing request cannot be read", "name", v.Key, "err", err)
			settled[v.Key] = v
			continue
		}
		changed, look := q.decide(ctx, csr)
		if changed {
			err = q.write(ctx, v.Key)
		}
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case err != nil:
			again = true
			q.reports.failed("cannot update a certificate signing request, retrying", "name", v.Key, "err", err)
		case !changed && !look:
			settled[v.Key] = v
		}
	}
	q.settled = settled
	return again, nil
}

// write decides about the newest version of a request and writes what was decided, unless the request
// changes meanwhile: then it decides again.
func (q *requests) write(ctx context.Context, name string) error {
	var written *certificatesv1.CertificateSigningRequest
	changed, err := q.writeStatus(ctx, q.res, q.subresource, "", name, func(cur *mvcc.Version, obj, _ tree.Object) (changed bool, err error) {
		written, err = requestOf(cur)
		if err != nil {
			return false, err
		}
		if changed, _ = q.decide(ctx, written); !changed {
			return false, nil
		}
		obj["status"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&written.Status)
		return true, err
	})
	if changed {
		q.decided(written)
	}
	return err
}

func requestOf(v *mvcc.Version) (*certificatesv1.CertificateSigningRequest, error) {
	csr := new(certificatesv1.CertificateSigningRequest)
	if err := json.Unmarshal(v.Value(), csr); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return csr, nil
}

// condition adds a condition to a request.
func condition(csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType, reason, message string, now time.Time) {
	at := metav1.NewTime(now)
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastUpdateTime: at, LastTransitionTime: at,
	})
}

// hasCondition reports whether a request has a condition, whatever its status says, as upstream's
// controllers ask.
func hasCondition(csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) bool {
	for i := range csr.Status.Conditions {
		if csr.Status.Conditions[i].Type == kind {
			return true
		}
	}
	return false
}
