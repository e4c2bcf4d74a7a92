package load

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/quorate/quorate/bench/client"
)

// valueSize is the size of each ConfigMap's one value.
const valueSize = 1024

// roundLabel is the label that a change changes: its value is new each time.
const roundLabel = `"round":"`

func name(i int) string { return fmt.Sprintf("cm-%06d", i) }

// object encodes ConfigMap i. An empty version is left out, as in a create.
func object(namespace string, i int, round int64, version string) []byte {
	var b bytes.Buffer
	b.WriteString(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name(i) + `","namespace":"` + namespace + `",`)
	if version != "" {
		b.WriteString(`"resourceVersion":"` + version + `",`)
	}
	fmt.Fprintf(&b, `"labels":{"app":"app-%d",%s%d"}},"data":{"value":"%s"}}`, i%100, roundLabel, round, client.Text(1, uint64(i), valueSize))
	return b.Bytes()
}

// mergePatch changes one label.
func mergePatch(round int64) []byte {
	b := append(make([]byte, 0, 64), `{"metadata":{"labels":{`+roundLabel...)
	b = strconv.AppendInt(b, round, 10)
	return append(b, `"}}}`...)
}

// replacement is a body for object i, encoded beforehand but for one text in it.
type replacement struct{ head, tail []byte }

func newReplacement(namespace string, i int, round int64) replacement {
	const slot = "0000000000"
	head, tail, _ := bytes.Cut(object(namespace, i, round, slot), []byte(slot))
	return replacement{head, tail}
}

// newConfiguration is object i as somebody applies it, but for its round.
func newConfiguration(namespace string, i int) replacement {
	const slot = 1234567890123456789
	head, tail, _ := bytes.Cut(object(namespace, i, slot, ""), strconv.AppendInt(nil, slot, 10))
	return replacement{head, tail}
}

func (r replacement) at(version []byte) []byte {
	b := make([]byte, 0, len(r.head)+len(version)+len(r.tail))
	b = append(append(b, r.head...), version...)
	return append(b, r.tail...)
}

// roundOf finds the round label in an encoded object or event.
func roundOf(raw []byte) (int64, bool) {
	digits, ok := client.Between(raw, roundLabel, '"')
	n, err := strconv.ParseInt(string(digits), 10, 64)
	return n, ok && err == nil
}
