package eventratelimit

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// limitType says what shares a bucket.
type limitType string

const (
	ofServer          limitType = "Server"
	ofNamespace       limitType = "Namespace"
	ofUser            limitType = "User"
	ofSourceAndObject limitType = "SourceAndObject"
)

var limitTypes = []limitType{ofNamespace, ofServer, ofSourceAndObject, ofUser} // sorted

// defaultCacheSize is how many buckets a limit has if it does not say.
const defaultCacheSize = 4096

// configuration is Configuration of eventratelimit.admission.k8s.io/v1alpha1.
type configuration struct {
	metav1.TypeMeta `json:",inline"`

	Limits []limit `json:"limits"`
}

// limit lets Burst Events pass, and QPS more in each second, for each bucket of its type.
type limit struct {
	Type  limitType `json:"type"`
	QPS   int32     `json:"qps"`
	Burst int32     `json:"burst"`
	// CacheSize is how many buckets there are; the one that was asked longest ago is
	// forgotten first, and full when it is needed again.
	CacheSize int32 `json:"cacheSize,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (c *configuration) DeepCopyObject() runtime.Object {
	return &configuration{c.TypeMeta, slices.Clone(c.Limits)}
}

// load reads and checks a configuration; nil is one without limits. Fields that it does not
// know are errors.
func load(config io.Reader) (*configuration, error) {
	c := &configuration{}
	if config != nil {
		raw, err := io.ReadAll(config)
		if err != nil {
			return nil, err
		}
		gv := schema.GroupVersion{Group: "eventratelimit.admission.k8s.io", Version: "v1alpha1"}
		scheme := runtime.NewScheme()
		scheme.AddKnownTypeWithName(gv.WithKind("Configuration"), c)
		decoded, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer(), raw)
		if err != nil {
			return nil, err
		}
		ok := false
		if c, ok = decoded.(*configuration); !ok {
			return nil, fmt.Errorf("it is a %T, want a Configuration of %s", decoded, gv)
		}
	}
	return c, c.validate().ToAggregate()
}

func (c *configuration) validate() (errs field.ErrorList) {
	path := field.NewPath("limits")
	if len(c.Limits) == 0 {
		errs = append(errs, field.Invalid(path, c.Limits, "must not be empty"))
	}
	for i, l := range c.Limits {
		at := path.Index(i)
		if !slices.Contains(limitTypes, l.Type) {
			errs = append(errs, field.NotSupported(at.Child("type"), l.Type, limitTypes))
		}
		if l.Burst <= 0 {
			errs = append(errs, field.Invalid(at.Child("burst"), l.Burst, "must be positive"))
		}
		if l.QPS <= 0 {
			errs = append(errs, field.Invalid(at.Child("qps"), l.QPS, "must be positive"))
		}
		if l.Type != ofServer && l.CacheSize < 0 {
			errs = append(errs, field.Invalid(at.Child("cacheSize"), l.CacheSize, "must not be negative"))
		}
	}
	return errs
}

// buckets is how many buckets a limit has.
func (l *limit) buckets() int {
	if l.Type == ofServer {
		return 1
	}
	return int(cmp.Or(l.CacheSize, defaultCacheSize))
}
