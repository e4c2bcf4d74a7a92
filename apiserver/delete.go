//lint:file-ignore SA1019 orphanDependents is deprecated for clients, not for servers: older clients still send it

package apiserver

import (
	"net/http"

	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/apiserver/wire/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (c verbs) delete() error {
	shape := codec.ShapeOther
	if c.Resource.ReturnsDeleted {
		shape = codec.ShapeObject
	}
	f, err := c.format(c.Resource, shape)
	if err != nil {
		return err
	}
	o, err := c.readDeleteOptions()
	if err != nil {
		return err
	}
	w, uid, err := c.Delete(o)
	if err != nil {
		return err
	}
	if w.Deleted && !c.Resource.ReturnsDeleted {
		codec.WriteStatus(c, c.r, status.Success(c.Resource.GroupResource(), c.Info.Name, uid))
		return nil
	}
	code := http.StatusOK
	if !w.Deleted && o.OrphanDependents != nil && !*o.OrphanDependents {
		code = http.StatusAccepted
	}
	return c.answer(f, code, w)
}

func (c verbs) readDeleteOptions() (*metav1.DeleteOptions, error) {
	raw, err := c.body(nil)
	if err != nil {
		return nil, err
	}
	o, err := deleteOptions(&c.Options, c.r.Header.Get("Content-Type"), raw)
	if err == nil {
		// From here on what they say of a dry run is what the request does.
		c.Options.DryRun = o.DryRun
	}
	return o, c.writeOptions(err)
}

// deleteOptions are the request's: a body that is not empty wins over the query.
func deleteOptions(query *request.Options, contentType string, raw []byte) (*metav1.DeleteOptions, error) {
	if len(raw) == 0 {
		return query.DeleteOptions()
	}
	body, err := codec.Decode(contentType, raw, nil)
	if err != nil {
		return nil, err
	}
	return request.DeleteOptionsOf(body.Object)
}
