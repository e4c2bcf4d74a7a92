package objects

import (
	"errors"
	"time"

	"github.com/quorate/quorate/apiserver/access/audit"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/wire/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrSlowAdmission is the end of a delete whose admission took longer than it was to be waited for.
var ErrSlowAdmission = errors.New("admission takes long")

// DeleteAdmitted is DeleteAs for controllers whose deletes are a client's upstream: admission is asked about what user
// deletes, and the entry says which rules that was decided by. If the plugins take longer than patience, it is
// ErrSlowAdmission; zero: they may take as long as they take.
func (o *Op) DeleteAdmitted(user *auth.User, options *metav1.DeleteOptions, patience time.Duration) (w Written, err error) {
	defer o.contain(&err)
	o.User, o.admitted, o.patience, o.DecidedAt = user, true, patience, o.Store.Storage.State().Applied()
	return o.DeleteAs(&audit.User{Name: user.Name, Groups: user.Groups}, options)
}

// AsServer is the server itself, as far as the audit log is concerned. What ends the objects
// of a definition runs in the API server upstream, too.
var AsServer = &audit.User{Name: "system:apiserver", Groups: []string{auth.Masters, auth.Authenticated}}

// DeleteAs is Delete of an operation that no client asked for, with the audit event that
// the request of a controller would have.
func (o *Op) DeleteAs(user *audit.User, options *metav1.DeleteOptions) (w Written, err error) {
	var event *audit.Event
	if log := o.Store.Audit; log != nil {
		i := &o.Info
		path := i.ObjectPath()
		event = log.BeginOwn(path, o.Start, &audit.Attributes{
			User: user, Verb: i.Verb, Path: path, Namespace: i.Namespace, Name: i.Name,
			APIGroup: i.Group, APIVersion: i.Version, Resource: i.Resource,
		})
		o.Event = event
	}
	w, _, err = o.Delete(options)
	code := 200
	if err != nil {
		answer := status.ForRequest(err, o.Info.Verb, o.Resource.GroupResource())
		event.Refused(answer)
		code = int(answer.Code)
	}
	event.Completed(code)
	return w, err
}
