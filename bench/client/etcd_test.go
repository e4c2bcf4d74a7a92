package client

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func TestEtcdMessages(t *testing.T) {
	long := strings.Repeat("v", 300)
	for got, want := range map[string]string{
		string(EtcdPut([]byte("key"), []byte(long))):           "\x0a\x03key\x12\xac\x02" + long,
		string(EtcdPutAt([]byte("k"), []byte("v"), 300)):       "\x0a\x08\x10\x02\x1a\x01k\x30\xac\x02\x12\x08\x12\x06\x0a\x01k\x12\x01v",
		string(EtcdRange([]byte("k"), nil, 0, false)):          "\x0a\x01k",
		string(EtcdRange([]byte("k"), []byte("l"), 500, true)): "\x0a\x01k\x12\x01l\x18\xf4\x03\x38\x01",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestReadEtcd(t *testing.T) {
	message := func(number protowire.Number, b string) string {
		return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), b))
	}
	number := func(number protowire.Number, v uint64) string {
		return string(protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), v))
	}
	header := message(1, number(1, 77)+number(3, 42))
	for _, c := range []struct {
		method, raw string
		want        EtcdAnswer
	}{
		{"Put", header, EtcdAnswer{Revision: 42}},
		{"Txn", header + number(2, 1) + message(3, message(2, header)), EtcdAnswer{Revision: 42, Succeeded: true}},
		{"Txn", header, EtcdAnswer{Revision: 42}},
		{"Range", header + message(2, message(1, "a")+number(3, 7)) + message(2, number(3, 8)) + number(4, 10), EtcdAnswer{Revision: 42, Count: 10, ModifiedAt: 7}},
		{"DeleteRange", header + number(2, 3), EtcdAnswer{Revision: 42}},
	} {
		if got, err := ReadEtcd(c.method, []byte(c.raw)); err != nil || got != c.want {
			t.Errorf("%s %q: %+v, %v, want %+v", c.method, c.raw, got, err, c.want)
		}
	}
}

// FuzzReadEtcd: whatever answers, it is read to its end or refused.
func FuzzReadEtcd(f *testing.F) {
	f.Add("Range", []byte("\x0a\x02\x18\x2a\x12\x02\x18\x07\x20\x0a"))
	f.Add("Txn", []byte("\x0a\x02\x18\x2a\x10\x01"))
	f.Add("Put", []byte{0xff, 0xff})
	f.Fuzz(func(t *testing.T, method string, raw []byte) {
		if a, err := ReadEtcd(method, raw); err == nil && a.Revision == 0 {
			t.Errorf("%q: %+v", raw, a)
		}
	})
}
