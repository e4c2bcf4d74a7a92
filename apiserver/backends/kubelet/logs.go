package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxErrorText is how much of a kubelet's refusal a client is told, in bytes, as upstream.
const maxErrorText = 50000

// errRedirect is upstream's for a kubelet that sends the server elsewhere: it could be anywhere.
var errRedirect = errors.New("redirects forbidden")

// Get asks a kubelet for something, and returns what it answers with. Errors: it cannot be reached; its
// refusal, as upstream hands it on. resource and name are for that.
func (c *Client) Get(ctx context.Context, l Location, resource schema.GroupResource, name string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.URL.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("failed to construct request for %s, got %w", l.URL, err)
	}
	client := http.Client{Transport: l, CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect }}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= http.StatusOK && answer.StatusCode <= http.StatusPartialContent {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxErrorText))
	switch {
	case err != nil:
		return nil, apierrors.NewInternalError(err)
	case answer.StatusCode == http.StatusInternalServerError:
		return nil, apierrors.NewInternalError(errors.New(string(text)))
	case answer.StatusCode == http.StatusBadRequest:
		return nil, apierrors.NewBadRequest(string(text))
	}
	return nil, apierrors.NewGenericServerResponse(answer.StatusCode, "", resource, name, string(text), 0, false)
}
