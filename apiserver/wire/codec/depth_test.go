package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// nested is a message within a message, so many times, all in the field of a tag.
func nested(depth int, tag ...byte) []byte {
	var backwards []byte
	size := 0
	for range depth {
		head := binary.AppendUvarint(slices.Clone(tag), uint64(size))
		size += len(head)
		slices.Reverse(head)
		backwards = append(backwards, head...)
	}
	slices.Reverse(backwards)
	return backwards
}

// definitionOf is a document of a CustomResourceDefinition with that schema.
func definitionOf(schema []byte) []byte {
	for _, tag := range []byte{0x0a, 0x22, 0x3a, 0x12} { // openAPIV3Schema, schema, versions, spec
		schema = append(binary.AppendUvarint([]byte{tag}, uint64(len(schema))), schema...)
	}
	return appendDocument(nil, "apiextensions.k8s.io/v1", "CustomResourceDefinition", schema)
}

// TestDepthOfProtobuf: a schema of "not" within "not" is refused before it overflows the
// stack, which would end the process, whatever kind the path is for.
func TestDepthOfProtobuf(t *testing.T) {
	not := []byte{0xe2, 0x01}
	for _, depth := range []int{maxDepth, 500_000} {
		if _, err := Decode(Protobuf, definitionOf(nested(depth, not...)), pods); err == nil || !strings.Contains(err.Error(), errTooDeep.Error()) {
			t.Errorf("%d levels: %.200v", depth, err)
		}
	}
	tree, _, _, err := decodeProtobuf(definitionOf(nested(50, not...)), schema.GroupVersionKind{})
	if err != nil || tree["spec"] == nil {
		t.Errorf("50 levels: %v", err)
	}
	if _, err := Decode(Protobuf, definitionOf(nested(500_000, not...)), nil); err == nil {
		t.Error("as options they were decoded")
	}
}

// allocated is how many bytes f allocates. Several steps of decoding refuse what has too
// many messages in the same words, and only the first of them before it takes memory.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestNumberOfMessages: half a million empty containers are one megabyte, and would be
// more than a gigabyte.
func TestNumberOfMessages(t *testing.T) {
	spec := bytes.Repeat([]byte{0x12, 0x00}, maxLengths+1)
	if err := checkDepth(spec[2:]); err != nil {
		t.Errorf("%d messages: %v", maxLengths, err)
	}
	if err := checkDepth(spec); !errors.Is(err, errTooMany) {
		t.Errorf("%d messages: %v", maxLengths+1, err)
	}
	pod := appendDocument(nil, "v1", "Pod", append(binary.AppendUvarint([]byte{0x12}, uint64(len(spec))), spec...))
	if _, err := Decode(Protobuf, appendDocument(nil, "v1", "Pod", append([]byte{0x12, 2}, spec[:2]...)), pods); err != nil {
		t.Errorf("one container: %v", err)
	}
	for name, decode := range map[string]func() error{
		"Decode": func() error { _, err := Decode(Protobuf, pod, pods); return err },
		"DecodeTyped": func() error {
			_, _, err := DecodeTyped(Protobuf, pod, pods, new(corev1.Pod), true, func(string, string) (schema.GroupVersionKind, error) { return pods.GVK(), nil })
			return err
		},
	} {
		var err error
		took := allocated(func() { err = decode() })
		if err == nil || !strings.Contains(err.Error(), errTooMany.Error()) || took > 32<<20 {
			t.Errorf("%s: %.200v, with %d bytes of memory", name, err, took)
		}
	}
}

// TestBytesLikeMessages: the largest data that a Secret may have, in bytes that look like empty messages.
func TestBytesLikeMessages(t *testing.T) {
	secret := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string][]byte{"k": bytes.Repeat([]byte{0x0a, 0}, 1<<19)}}
	raw, err := secret.Marshal()
	must.OK(t, err)
	if err := checkDepth(appendDocument(nil, "v1", "Secret", raw)); err != nil {
		t.Error(err)
	}
}

// TestNumberOfNodes is TestNumberOfMessages for JSON, and for YAML, which becomes JSON.
func TestNumberOfNodes(t *testing.T) {
	document := func(node string, n int) []byte {
		return []byte(`{"metadata":{"x":[` + strings.Repeat(node+",", n) + `[]]}}`)
	}
	for kind, node := range map[string]string{JSON: "[]", YAML: "{}"} {
		for n, ok := range map[int]bool{1000: true, maxMessages: false} {
			_, err := Decode(kind, document(node, n), pods)
			if ok != (err == nil) || err != nil && !strings.Contains(err.Error(), errTooMany.Error()) {
				t.Errorf("%s, %d of %s: %.200v", kind, n, node, err)
			}
		}
	}
	// What follows behind the first node too many takes no memory.
	var took [2]uint64
	for i, n := range []int{maxMessages, 15 * maxMessages / 8} {
		body := document("{}", n)
		took[i] = allocated(func() { _, _ = Decode(JSON, body, pods) })
	}
	if took[1] > took[0]+8<<20 {
		t.Errorf("%d bytes of memory for one node too many, %d for twice as many", took[0], took[1])
	}
}

// FuzzDepth: what checkDepth finds is what nested made, with anything around it.
func FuzzDepth(f *testing.F) {
	f.Add([]byte("abc"), uint16(5), []byte{0x08, 0x01})
	f.Add([]byte{0x0a, 0x01, 0xff}, uint16(10_000), []byte{})
	f.Add([]byte{0x0b, 0x0c, 0x0d, 1, 2, 3, 4}, uint16(12_000), bytes.Repeat([]byte{0x12, 0x00}, 9))
	f.Fuzz(func(t *testing.T, before []byte, depth uint16, after []byte) {
		_ = checkDepth(before)
		// Whole fields only may stand before: else the rest is not read as a message.
		message := nested(int(depth), 0x0a)
		if field := append(binary.AppendUvarint([]byte{0x12}, uint64(len(before))), before...); len(message) > 0 {
			message = append(field, message...)
		}
		err := checkDepth(append(message, after...))
		if int(depth) > maxDepth+1 && !errors.Is(err, errTooDeep) {
			t.Errorf("%d levels were not found: %v", depth, err)
		}
		if int(depth)+len(before)/2+len(after)/2 < maxDepth-1 && err != nil {
			t.Errorf("%d levels: %v", depth, err)
		}
	})
}
