package crd

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// definitionOf is a stored definition with so many rules and fields, and an annotation.
func definitionOf(name string, rules, fields int, annotation string) string {
	var props, checks []string
	for i := range fields {
		props = append(props, fmt.Sprintf(`"field%d":{"type":"string","maxLength":100,"description":"what the field is for"}`, i))
	}
	for i := range rules {
		checks = append(checks, fmt.Sprintf(`{"rule":"!has(self.field0) || self.field0 != 'x%d'"}`, i))
	}
	return fmt.Sprintf(`{"metadata":{"name":"%[1]ss.g.example","annotations":{"a":%[2]q}},"spec":{"group":"g.example","scope":"Cluster","names":{"plural":"%[1]ss","kind":"K","listKind":"KList","singular":"k"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"field0":{"type":"string","maxLength":5},"spec":{"type":"object","properties":{%[3]s}}},"x-kubernetes-validations":[%[4]s]}}}]},
		"status":{"acceptedNames":{"plural":"%[1]ss","kind":"K","listKind":"KList","singular":"k"},"storedVersions":["v1"],
		"conditions":[{"type":"NamesAccepted","status":"True"},{"type":"Established","status":"True"}]}}`, name, annotation, strings.Join(props, ","), strings.Join(checks, ","))
}

func mustRead(t testing.TB, c *compilations, value string) *Definition {
	t.Helper()
	d, err := read((&mvcc.Version{Key: "ks.g.example"}).SetValue([]byte(value)), c)
	must.OK(t, err)
	return d
}

func mustCompile(t testing.TB, d *Definition) *compilation {
	t.Helper()
	c, err := d.versions[0].compilation()
	must.OK(t, err)
	return c
}

// TestCompilationsEnd: what was replaced or deleted keeps nothing compiled, what replaces it with the same schema is not
// compiled again, and requests that began before can go on.
func TestCompilationsEnd(t *testing.T) {
	var c compilations
	first := mustRead(t, &c, definitionOf("k", 1, 1, "1"))
	made := mustCompile(t, first)
	second := mustRead(t, &c, definitionOf("k", 1, 1, "2"))
	second.succeed(first)
	if mustCompile(t, second) != made || c.queue.Len() != 1 || c.bytes != second.versions[0].compiled.bytes {
		t.Errorf("another annotation: %d kept, %d bytes", c.queue.Len(), c.bytes)
	}
	third := mustRead(t, &c, definitionOf("k", 2, 1, "2"))
	third.succeed(second)
	if c.queue.Len() != 0 || c.bytes != 0 || second.versions[0].compiled.now.Load() != nil {
		t.Errorf("another schema: %d kept, %d bytes", c.queue.Len(), c.bytes)
	}
	if mustCompile(t, second) == nil || c.queue.Len() != 0 {
		t.Errorf("by a request that began before: %d kept", c.queue.Len())
	}
	if mustCompile(t, third) == made || c.queue.Len() != 1 {
		t.Errorf("the new one: %d kept", c.queue.Len())
	}
	third.end()
	if c.queue.Len() != 0 || c.bytes != 0 {
		t.Errorf("deleted: %d kept, %d bytes", c.queue.Len(), c.bytes)
	}
}

// TestCompilationsAreBounded: by their number and by what they take.
func TestCompilationsAreBounded(t *testing.T) {
	var c compilations
	for i := range maxCompilations + 10 {
		mustCompile(t, mustRead(t, &c, definitionOf(fmt.Sprint("k", i), 0, 1, "")))
	}
	if c.queue.Len() != maxCompilations {
		t.Errorf("%d are kept", c.queue.Len())
	}
	d := mustRead(t, &c, definitionOf("large", 0, 1, strings.Repeat("x", maxCompiled/schemaFactor)))
	mustCompile(t, d)
	if c.queue.Len() != 1 || d.versions[0].compiled.now.Load() == nil {
		t.Errorf("beside one that takes all, %d are kept", c.queue.Len()-1)
	}
}

// TestCompiledBytes: what is counted is about what is taken.
func TestCompiledBytes(t *testing.T) {
	for _, x := range []struct{ rules, fields int }{{0, 2000}, {100, 1}, {20, 500}} {
		var c compilations
		const n = 4
		all := make([]*Definition, n)
		for i := range all {
			all[i] = mustRead(t, &c, definitionOf(fmt.Sprint("k", i), x.rules, x.fields, ""))
		}
		before := heap()
		for _, d := range all {
			mustCompile(t, d)
		}
		taken := int(heap()) - int(before)
		if taken > 2*c.bytes || taken < c.bytes/4 {
			t.Errorf("%d rules and %d fields: %d KiB are taken, %d counted", x.rules, x.fields, taken>>10, c.bytes>>10)
		}
		t.Logf("%d rules and %d fields: %d KiB are taken, %d counted", x.rules, x.fields, taken>>10, c.bytes>>10)
		runtime.KeepAlive(all)
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
