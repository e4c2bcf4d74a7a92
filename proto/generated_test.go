package proto

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// TestGeneratedIsCurrent compares the files with the stamp that generate.sh
// leaves: a change of quorate.proto, or of the code by hand, shows.
func TestGeneratedIsCurrent(t *testing.T) {
	stamp, err := os.ReadFile("generated.sha256")
	must.OK(t, err)
	var files []string
	for s := bufio.NewScanner(bytes.NewReader(stamp)); s.Scan(); {
		want, file, ok := strings.Cut(s.Text(), "  ")
		if !ok {
			t.Fatalf("not a line of sha256sum: %q", s.Text())
		}
		files = append(files, file)
		b, err := os.ReadFile(file)
		must.OK(t, err)
		sum := sha256.Sum256(b)
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%s has changed since it was generated: run proto/generate.sh", file)
		}
	}
	if got, want := strings.Join(files, " "), "quorate.proto quorate.pb.go quorate_grpc.pb.go"; got != want {
		t.Errorf("the stamp covers %s, want %s", got, want)
	}
}

// TestGeneratedHasEveryName: the stamp may be written by hand, so the names of
// the source must be those of the code.
func TestGeneratedHasEveryName(t *testing.T) {
	src, err := os.ReadFile("quorate.proto")
	must.OK(t, err)
	declared := map[string]bool{}
	for s := bufio.NewScanner(bytes.NewReader(src)); s.Scan(); {
		if words := strings.Fields(s.Text()); len(words) > 2 && (words[0] == "message" || words[0] == "enum" || words[0] == "service") {
			declared[words[1]] = true
		}
	}
	generated := map[string]bool{}
	var walk func(messages protoreflect.MessageDescriptors, enums protoreflect.EnumDescriptors)
	walk = func(messages protoreflect.MessageDescriptors, enums protoreflect.EnumDescriptors) {
		for i := range enums.Len() {
			generated[string(enums.Get(i).Name())] = true
		}
		for i := range messages.Len() {
			if m := messages.Get(i); !m.IsMapEntry() {
				generated[string(m.Name())] = true
				walk(m.Messages(), m.Enums())
			}
		}
	}
	file := File_quorate_proto
	walk(file.Messages(), file.Enums())
	for i := range file.Services().Len() {
		generated[string(file.Services().Get(i).Name())] = true
	}
	for name := range declared {
		if !generated[name] {
			t.Errorf("%s is in quorate.proto and not in the code", name)
		}
	}
	for name := range generated {
		if !declared[name] {
			t.Errorf("%s is in the code and not in quorate.proto", name)
		}
	}
}
