package probe

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/quorate/quorate/bench/client"
)

// The objects are ConfigMaps. A probe's data has the number of its newest write
// beside the value.

// Name is that of object i.
func Name(i int) string { return fmt.Sprintf("o-%05d", i) }

// probeKey begins a probe's mark: `"probe":"K/N"`, its index and the number of the write.
const probeKey = `"probe":"`

func mark(k int, number int64) string { return fmt.Sprintf(`%s%d/%d"`, probeKey, k, number) }

// newObject encodes object i for its creation; the first probes objects are probes.
func newObject(i, probes, size int) []byte {
	data := `"value":"` + client.Text(7, uint64(i), size) + `"`
	if i < probes {
		data += "," + mark(i, 0)
	}
	return []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + Name(i) + `"},"data":{` + data + `}}`)
}

// ErrStrange is the error of an answer that no server should give.
var ErrStrange = errors.New("an answer is not what was asked for")

// Marks calls f for each probe's mark in an encoded object or list.
func Marks(raw []byte, f func(k int, number int64)) error {
	for {
		_, rest, ok := bytes.Cut(raw, []byte(probeKey))
		if !ok {
			return nil
		}
		raw = rest
		text, _, ok := bytes.Cut(rest, []byte{'"'})
		index, number, slash := strings.Cut(string(text), "/")
		k, err := strconv.Atoi(index)
		n, err2 := strconv.ParseInt(number, 10, 64)
		if !ok || !slash || err != nil || err2 != nil || k < 0 || n < 0 {
			return fmt.Errorf("%w: the mark %.40q", ErrStrange, text)
		}
		f(k, n)
	}
}

// RevisionOf is the resourceVersion of an encoded object or list.
func RevisionOf(raw []byte) (uint64, error) {
	text, err := client.VersionOf(raw)
	n, bad := strconv.ParseUint(string(text), 10, 64)
	if err != nil || bad != nil {
		return 0, fmt.Errorf("%w: no resourceVersion in %.80q", ErrStrange, raw)
	}
	return n, nil
}
