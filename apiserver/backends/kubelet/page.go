package kubelet

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/access/auth"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// maxToken bounds a tag, or a piece of text, that is looked at as a whole, in bytes. What follows a
// longer one goes on as it is.
const maxToken = 64 << 10

// linkAttributes are those that name places, as upstream has them.
var linkAttributes = map[atom.Atom][]string{
	atom.A: {"href"}, atom.Applet: {"codebase"}, atom.Area: {"href"}, atom.Audio: {"src"}, atom.Base: {"href"},
	atom.Blockquote: {"cite"}, atom.Body: {"background"}, atom.Button: {"formaction"}, atom.Command: {"icon"},
	atom.Del: {"cite"}, atom.Embed: {"src"}, atom.Form: {"action"}, atom.Frame: {"longdesc", "src"},
	atom.Head: {"profile"}, atom.Html: {"manifest"}, atom.Iframe: {"longdesc", "src"},
	atom.Img: {"longdesc", "src", "usemap"}, atom.Input: {"src", "usemap", "formaction"}, atom.Ins: {"cite"},
	atom.Link: {"href"}, atom.Object: {"classid", "codebase", "data", "usemap"}, atom.Q: {"cite"},
	atom.Script: {"src"}, atom.Source: {"src"}, atom.Video: {"poster", "src"},
}

// answers is a transport whose answers go on to clients. Links in pages lead through the proxy, as they
// do upstream, whose library keeps all of a page for that.
type answers struct {
	by     http.RoundTripper
	prefix string // of paths here
}

// rewriting returns the transport for requests to a path: client is the path here.
func rewriting(by http.RoundTripper, client, to string) http.RoundTripper {
	if strings.HasSuffix(client, "/") && !strings.HasSuffix(to, "/") {
		to += "/"
	}
	return &answers{by, strings.TrimSuffix(client, to)}
}

// untraced is a context that tells nobody of informational answers: they are between the server and
// the Pod. The library would clear this server's headers for each, and the transport take any number.
type untraced struct{ context.Context }

// Value implements context.Context.
func (untraced) Value(any) any { return nil }

// RoundTrip implements http.RoundTripper.
func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := a.by.RoundTrip(r.WithContext(ownTrace(r.Context())))
	if err != nil {
		return nil, err
	}
	res = auth.Backward(res)
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil || kind != "text/html" {
		return hidden(res), nil
	}
	// Where an answer leads elsewhere, upstream leaves its body alone.
	if r.Method != http.MethodHead && res.ContentLength != 0 && res.Header.Get("Location") == "" {
		a.rewrite(r, res)
	}
	return hidden(res), nil
}

// hidden hides the type of an answer from the library, which would rewrite a page, and not from clients: names of
// headers are made canonical when they are sent.
func hidden(res *http.Response) *http.Response {
	if v, ok := res.Header["Content-Type"]; ok {
		delete(res.Header, "Content-Type")
		res.Header["content-type"] = v
	}
	return res
}

// rewrite has the body of a page rewritten as it comes. What was compressed is not any more.
func (a *answers) rewrite(r *http.Request, res *http.Response) {
	p := &page{body: res.Body, at: r.URL, host: r.Host, prefix: a.prefix}
	switch res.Header.Get("Content-Encoding") {
	case "":
		p.in = res.Body
	case "gzip":
		p.in = &unzip{from: res.Body}
	case "deflate":
		p.in = flate.NewReader(res.Body)
	default:
		return
	}
	p.tokens = html.NewTokenizer(p.in)
	p.tokens.SetMaxBuf(maxToken)
	res.Header.Del("Content-Encoding")
	res.Header.Del("Content-Length")
	res.Body, res.ContentLength = p, -1
}

// unzip reads the header of what is compressed when it is asked for something.
type unzip struct {
	from io.Reader
	in   *gzip.Reader
}

// Read implements io.Reader.
func (u *unzip) Read(b []byte) (n int, err error) {
	if u.in == nil {
		if u.in, err = gzip.NewReader(u.from); err != nil {
			return 0, err
		}
	}
	return u.in.Read(b)
}

// page is the body of one, with its links rewritten. What it holds is bounded by maxToken.
type page struct {
	body   io.Closer
	in     io.Reader
	tokens *html.Tokenizer
	over   bool // tokens has ended; the rest is in in
	out    bytes.Buffer

	at     *url.URL // whence it comes
	host   string   // by which the client asked
	prefix string
}

// Close implements io.Closer.
func (p *page) Close() error { return p.body.Close() }

// Read implements io.Reader.
func (p *page) Read(b []byte) (int, error) {
	for p.out.Len() == 0 {
		if p.over {
			return p.in.Read(b)
		}
		// Many tokens at once, but what is there does not wait for more of the page.
		p.out.Reset()
		for first := true; first || !p.over && p.out.Len() < maxToken && bytes.IndexByte(p.tokens.Buffered(), '>') >= 0; first = false {
			if err := p.next(); err != nil {
				return 0, err
			}
		}
	}
	return p.out.Read(b)
}

// next reads a token.
func (p *page) next() error {
	switch p.tokens.Next() {
	case html.ErrorToken:
		err := p.tokens.Err()
		p.out.Write(p.tokens.Raw())
		p.out.Write(p.tokens.Buffered())
		switch {
		case err == html.ErrBufferExceeded:
			p.over = true
			return nil
		case err == io.EOF:
			p.over, p.in = true, eof{}
			return nil
		}
		return err
	case html.StartTagToken, html.SelfClosingTagToken:
		raw := bytes.Clone(p.tokens.Raw()) // Token makes other texts of it
		token, changed := p.tokens.Token(), false
		for i := range token.Attr {
			if !slices.Contains(linkAttributes[token.DataAtom], token.Attr[i].Key) {
				continue
			}
			if u, err := url.Parse(token.Attr[i].Val); err == nil {
				token.Attr[i].Val, changed = p.link(u), true
			}
		}
		if changed {
			raw = []byte(token.String())
		}
		p.out.Write(raw)
	default:
		p.out.Write(p.tokens.Raw())
	}
	return nil
}

type eof struct{}

// Read implements io.Reader.
func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// link makes a path of the Pod's one of this server's.
func (p *page) link(to *url.URL) string {
	if to.Host != "" && to.Host != p.at.Host && to.Host != p.host || !strings.HasPrefix(to.Path, "/") {
		return to.String()
	}
	if to.Host != p.host {
		to.Scheme, to.Host = "", ""
	}
	was := to.Path
	if strings.HasPrefix(was, p.prefix) {
		return to.String()
	}
	if to.Path = path.Join(p.prefix, was); strings.HasSuffix(was, "/") {
		to.Path += "/"
	}
	return to.String()
}
