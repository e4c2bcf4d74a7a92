package codec

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/munnerz/goautoneg"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Media types that are spoken.
const (
	JSON     = "application/json"
	YAML     = "application/yaml"
	Protobuf = "application/vnd.kubernetes.protobuf"
)

// media is a set of media types in the order in which upstream tries them.
var media = [...]struct {
	name, subtype string
	stream        bool
}{
	{JSON, "json", true}, {YAML, "yaml", false}, {Protobuf, "vnd.kubernetes.protobuf", true},
}

// As is the form in which objects are asked for.
type As int

const (
	AsObject As = iota
	AsTable
	AsMetadata // PartialObjectMetadata or PartialObjectMetadataList
)

// Format is the outcome of content negotiation.
type Format struct {
	MediaType     string // application/json, application/yaml, application/vnd.kubernetes.protobuf
	As            As
	AsVersion     string // v1 or v1beta1, for As != AsObject
	Pretty        bool
	IncludeObject metav1.IncludeObjectPolicy // for AsTable; default Metadata
	Stream        bool
}

// Shape says what the answer will be, for negotiation.
type Shape int

const (
	ShapeObject Shape = iota
	ShapeList
	ShapeWatch
	ShapeOther // Status and the like: never a Table
)

// Negotiate reads Accept, pretty, includeObject and User-Agent. res may be nil.
// Errors: 406 and 400 as *apierrors.StatusError.
func Negotiate(r *http.Request, res *kinds.Resource, shape Shape) (Format, error) {
	f := Format{MediaType: JSON, Stream: shape == ShapeWatch}
	pretty := false
	if accept := firstValue(r.Header, "Accept"); accept != "" && accept != JSON {
		c, m, ok := choose(clauses(accept), res)
		if !ok || f.Stream && !media[m].stream {
			if res != nil && !res.Custom && !namesMedia(accept) {
				return Format{}, status.NoSuchMedia(mediaNames())
			}
			return Format{}, notAcceptable(res, f.Stream)
		}
		f.MediaType, pretty = media[m].name, c.pretty
		if shape != ShapeOther && c.as != "" {
			if err := convert(&f, c, res, shape); err != nil {
				return Format{}, err
			}
		}
	}
	if f.As == AsTable {
		policy, err := includeObject(r.URL)
		if err != nil {
			return Format{}, err
		}
		f.IncludeObject = policy
	}
	f.Pretty = !f.Stream && f.MediaType == JSON && (pretty || wantsPretty(r))
	return f, nil
}

func firstValue(h http.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// convert sets As from a clause's parameters.
func convert(f *Format, c *clause, res *kinds.Resource, shape Shape) error {
	f.AsVersion = c.version
	switch c.as {
	case "Table":
		f.As = AsTable
		return nil
	case "PartialObjectMetadata":
		if shape == ShapeList {
			return status.NotAcceptableText("you requested PartialObjectMetadata, but the requested object is a list (" + goType(res, true) + ")")
		}
	case "PartialObjectMetadataList":
		if shape != ShapeList {
			return status.NotAcceptableText("you requested PartialObjectMetadataList, but the requested object is not a list (" + goType(res, false) + ")")
		}
	}
	f.As = AsMetadata
	return nil
}

// goType is how upstream names the type of an answer in error texts.
func goType(res *kinds.Resource, list bool) string {
	switch {
	case res == nil:
		return "object"
	case res.Custom && list:
		return "*unstructured.UnstructuredList"
	case res.Custom:
		return "*unstructured.Unstructured"
	case list:
		return "*" + res.Version + "." + res.ListKindName()
	}
	return "*" + res.Version + "." + res.Kind
}

// choose finds the first clause that can be met, and the medium for it.
func choose(list []clause, res *kinds.Resource) (*clause, int, bool) {
	for i := range list {
		c := &list[i]
		for m := range media {
			if c.media&(1<<m) != 0 && allowed(c, m, res) {
				return c, m, true
			}
		}
	}
	return nil, 0, false
}

func allowed(c *clause, m int, res *kinds.Resource) bool {
	if c.stream != "" && (c.stream != "watch" || !media[m].stream) {
		return false
	}
	switch c.as {
	case "":
		return media[m].name != Protobuf || res == nil || res.HasProtobuf()
	case "Table":
		return res != nil && !res.Virtual && media[m].name != Protobuf
	default:
		return res != nil
	}
}

// namesMedia reports whether an Accept header names a medium that is spoken,
// whatever else it asks for.
func namesMedia(header string) bool {
	for _, a := range goautoneg.ParseAccept(header) {
		for _, m := range media {
			if a.Type == "application" && (a.SubType == m.subtype || a.SubType == "*") || a.Type == "*" && a.SubType == "*" {
				return true
			}
		}
	}
	return false
}

func mediaNames() []string {
	names := make([]string, len(media))
	for i, m := range media {
		names[i] = m.name
	}
	return names
}

func notAcceptable(res *kinds.Resource, stream bool) error {
	var names []string
	for _, m := range media {
		switch {
		case m.name == Protobuf && res != nil && !res.HasProtobuf(), stream && !m.stream:
		case stream:
			names = append(names, m.name+";stream=watch")
		default:
			names = append(names, m.name)
		}
	}
	return status.NotAcceptable(names)
}

// wantsPretty follows the query, else guesses whether a person reads.
func wantsPretty(r *http.Request) bool {
	if r.URL != nil && strings.Contains(r.URL.RawQuery, "pretty") {
		if v := r.URL.Query().Get("pretty"); v != "" {
			on, err := strconv.ParseBool(v)
			return err == nil && on
		}
	}
	agent := firstValue(r.Header, "User-Agent")
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

func includeObject(u *url.URL) (metav1.IncludeObjectPolicy, error) {
	if u == nil || !strings.Contains(u.RawQuery, "includeObject") {
		return metav1.IncludeMetadata, nil
	}
	switch v := metav1.IncludeObjectPolicy(u.Query().Get("includeObject")); v {
	case metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
		return v, nil
	case "":
		return metav1.IncludeMetadata, nil
	default:
		return "", status.BadRequest("Unable to convert to Table as requested: includeObject: Invalid value: %q: "+
			"must be 'Metadata', 'Object', 'None', or empty", string(v))
	}
}

// clause is one part of an Accept header that could be met at all.
type clause struct {
	media   uint8 // bits of the indexes in media
	as      string
	version string
	stream  string
	pretty  bool
}

// Parsed headers are kept, as all requests of a client carry the same one. The
// map is replaced as a whole; when it is full, it starts again.
const (
	maxAccepts      = 256
	maxAcceptLength = 1024
)

var (
	accepts   atomic.Pointer[map[string][]clause]
	acceptsMu sync.Mutex // serialises the replacements
)

func clauses(header string) []clause {
	if m := accepts.Load(); m != nil {
		if list, ok := (*m)[header]; ok {
			return list
		}
	}
	list := parseAccept(header)
	if len(header) <= maxAcceptLength {
		keepAccept(header, list)
	}
	return list
}

func keepAccept(header string, list []clause) {
	acceptsMu.Lock()
	defer acceptsMu.Unlock()
	next := make(map[string][]clause)
	if m := accepts.Load(); m != nil && len(*m) < maxAccepts {
		for k, v := range *m {
			next[k] = v
		}
	}
	next[strings.Clone(header)] = list
	accepts.Store(&next)
}

// parseAccept sorts the clauses by their weight and drops those that can never
// be met: other media, other conversions. Unknown parameters are ignored.
func parseAccept(header string) []clause {
	var list []clause
	for _, a := range goautoneg.ParseAccept(header) {
		c := clause{}
		for m := range media {
			if a.Type == "application" && (a.SubType == media[m].subtype || a.SubType == "*") || a.Type == "*" && a.SubType == "*" {
				c.media |= 1 << m
			}
		}
		if c.media != 0 && c.params(a.Params) {
			list = append(list, c)
		}
	}
	return list
}

// params reads the known parameters and reports whether they can be met.
func (c *clause) params(params map[string]string) bool {
	group, grouped := params["g"]
	version, versioned := params["v"]
	as, converted := params["as"]
	if grouped || versioned || converted {
		switch as {
		case "Table", "PartialObjectMetadata", "PartialObjectMetadataList":
		default:
			return false
		}
		if group != metav1.GroupName || version != "v1" && version != "v1beta1" {
			return false
		}
	}
	if sv := params["sv"]; sv != "" && sv != "v1" {
		return false
	}
	c.as, c.version, c.stream, c.pretty = strings.Clone(as), strings.Clone(version), strings.Clone(params["stream"]), params["pretty"] == "1"
	return true
}
