package story

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// stream is an open watch. Its reader ends when it is closed or the server ends it.
type stream struct {
	close  context.CancelFunc
	events chan string
}

func (r *run) open(path string) (*stream, error) {
	u, err := url.Parse(path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(r.ctx)
	w, err := r.send((&http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}).WithContext(ctx))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch %s: %w", path, err)
	}
	if w.StatusCode != http.StatusOK {
		defer cancel()
		defer w.Body.Close()
		answer, _ := io.ReadAll(w.Body)
		return nil, fmt.Errorf("watch %s: %s: %s", path, w.Status, clip(string(answer)))
	}
	s := &stream{close: cancel, events: make(chan string)}
	go func() {
		defer close(s.events)
		defer w.Body.Close()
		lines := bufio.NewReader(w.Body)
		for {
			line, err := lines.ReadString('\n')
			if line != "" {
				select {
				case s.events <- line:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return s, nil
}

// next returns the next event, or "" at the end of the stream.
func (s *stream) next(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	select {
	case line := <-s.events:
		return line, nil
	case <-ctx.Done():
		return "", errors.New("no event came within " + Patience.Round(time.Second).String())
	}
}
