package disk

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

func TestMultiply(t *testing.T) {
	dir := t.TempDir()
	template := (&mvcc.Version{
		Key: "ns/template", Revision: 12, CreateRevision: 12, RevisionOffset: 38,
		UID: "aaaa", Fields: mvcc.AttributesOf(mvcc.Pair{Name: "expires", Value: "1"}, mvcc.Pair{Name: "spec.of", Value: "template"}),
	}).SetValue([]byte(`{"name":"template","uid":"aaaa","rv":"12"}`))
	other := (&mvcc.Version{Key: "ns/other", Revision: 13, CreateRevision: 13}).SetValue([]byte("x"))
	must.OK(t, buildState(dir, []Added{{"configmaps", template}, {"secrets", other}}, &proto.StateRecord{Applied: 20, AppliedTerm: 2, ClusterId: "c"}))
	db := mustOpen(t, dir, Options{})
	var small, big bytes.Buffer
	if _, err := db.WriteBackup(&small, nil); err != nil {
		t.Fatal(err)
	}
	with := func(i int, text string) string { return fmt.Sprintf("%0*d", len(text), i) }
	copies := Copies{
		Table: "configmaps", Key: "ns/template", N: 1000, Texts: []string{"template", "aaaa"}, With: with,
		Fields: map[string]func(int) string{"expires": func(i int) string { return fmt.Sprint(7 * i) }},
	}
	must.OK(t, Multiply(&big, bytes.NewReader(small.Bytes()), copies))
	_, state, err := loadBackup(&big)
	must.OK(t, err)
	must.OK(t, state.Check())
	if n, _ := state.Table("configmaps").Live(); n != 1001 || state.Applied() != 1020 {
		t.Fatalf("%d objects at %d", n, state.Applied())
	}
	v, err := state.Table("configmaps").Get("ns/00000999", state.Applied())
	if err != nil || v == nil {
		t.Fatal(v, err)
	}
	if got, want := fmt.Sprintf("%s %d %s %v", v.Value(), v.Revision, v.UID, maps.Collect(v.Fields.All())), `{"name":"00000999","uid":"0999","rv":"1020"} 1020 0999 map[expires:6993 spec.of:00000999]`; got != want {
		t.Errorf("copy: %s, want %s", got, want)
	}
	copies.Fields["absent"] = copies.Fields["expires"]
	if err := Multiply(&big, bytes.NewReader(small.Bytes()), copies); err == nil || !strings.Contains(err.Error(), `no field "absent"`) {
		t.Errorf("copies with a field that the template lacks: %v", err)
	}
	copies.Fields, copies.Key = nil, "ns/absent"
	if err := Multiply(&big, bytes.NewReader(small.Bytes()), copies); err == nil {
		t.Error("copies of what is not there were made")
	}
}
