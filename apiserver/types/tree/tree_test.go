package tree

import (
	"reflect"
	"testing"
	"time"
)

// TestSetCondition: a condition has its place, and its time moves with its status only.
func TestSetCondition(t *testing.T) {
	before, now := "2026-01-01T00:00:00Z", time.Date(2026, 2, 2, 0, 0, 0, 0, time.UTC)
	at := Timestamp(now)
	ready := func(status, reason, since string) Object {
		return Object{"type": "Ready", "status": status, "reason": reason, "lastTransitionTime": since}
	}
	other := Object{"type": "Other", "status": "True"}
	for _, x := range []struct {
		name string
		has  any
		want []any
	}{
		{"none", nil, []any{ready("True", "Now", at)}},
		{"no list", "x", []any{ready("True", "Now", at)}},
		{"another type", []any{other}, []any{other, ready("True", "Now", at)}},
		{"another status", []any{ready("False", "Now", before), other}, []any{ready("True", "Now", at), other}},
		{"another reason", []any{other, ready("True", "Then", before)}, []any{other, ready("True", "Now", before)}},
		{"the same", []any{ready("True", "Now", before)}, []any{ready("True", "Now", before)}},
		{"no object", []any{"x"}, []any{"x", ready("True", "Now", at)}},
	} {
		set := Object{"type": "Ready", "status": "True", "reason": "Now"}
		if got := SetCondition(x.has, set, now); !Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
		if len(set) != 3 {
			t.Errorf("%s: the condition was changed: %v", x.name, set)
		}
		if list := List(x.has); len(list) > 0 && x.name == "another reason" && !Equal(list[1], ready("True", "Then", before)) {
			t.Errorf("%s: the list was changed: %v", x.name, list)
		}
	}
}

// TestSet: what is on the way is copied, so that who shares it sees no change.
func TestSet(t *testing.T) {
	shared := Object{"b": Object{"c": int64(1)}, "d": "text"}
	obj := Object{"a": shared}
	if err := Set(obj, ".a.b.c", int64(2)); err != nil || Lookup(obj, "a.b.c") != int64(2) {
		t.Errorf("%v, %v", obj, err)
	}
	if Field(shared, "b", "c") != int64(1) {
		t.Errorf("shared: %v", shared)
	}
	if err := Set(obj, "e.f", true); err != nil || Lookup(obj, "e.f") != true {
		t.Errorf("%v, %v", obj, err)
	}
	if err := Set(obj, "a.d.x", true); err == nil || err.Error() != "d is not an object" {
		t.Errorf("%v", err)
	}
}

// TestEqual: numbers count by their values, and absent is not empty.
func TestEqual(t *testing.T) {
	for _, x := range []struct {
		a, b any
		want bool
	}{
		{int64(1), 1.0, true}, {1.0, int64(1), true}, {int64(1), int64(2), false}, {int64(1), "1", false},
		{nil, nil, true}, {nil, Object{}, false}, {Object{}, Object{}, true}, {[]any{}, nil, false},
		{Object{"a": nil}, Object{}, false}, {Object{"a": []any{int64(1)}}, Object{"a": []any{1.0}}, true},
		{Object{"a": "x"}, Object{"b": "x"}, false}, {[]any{"a", "b"}, []any{"b", "a"}, false},
	} {
		if Equal(x.a, x.b) != x.want || Equal(x.b, x.a) != x.want {
			t.Errorf("Equal(%v, %v) is not %v", x.a, x.b, x.want)
		}
	}
}

// TestReading: what is not there is empty, and to look costs no memory.
func TestReading(t *testing.T) {
	obj := Object{"metadata": Object{"name": "n", "finalizers": []any{"a", "b"}}, "spec": Object{"replicas": 3.0}}
	look := func() {
		if n, ok := Int(Lookup(obj, ".spec.replicas")); n != 3 || !ok {
			t.Error("spec.replicas")
		}
		if Text(As(obj["metadata"]), "name") != "n" || Text(nil, "x") != "" || len(List(Field(obj, "metadata", "finalizers"))) != 2 {
			t.Error("metadata")
		}
		if Field(obj, "metadata", "name", "x") != nil || Lookup(obj, "spec.none.x") != nil || List(obj) != nil || As([]any{}) != nil {
			t.Error("what is not there")
		}
		if !Equal(obj, obj) {
			t.Error("an object is not itself")
		}
	}
	if n := testing.AllocsPerRun(100, look); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if list, ok := Strings(Field(obj, "metadata", "finalizers")); !ok || !reflect.DeepEqual(FromStrings(list), []any{"a", "b"}) {
		t.Errorf("%v", list)
	}
	for want, v := range map[string]any{"n": "n", "true": true, "-7": int64(-7), "1.5": 1.5, "3": 3.0, "": []any{"n"}} {
		if got := Scalar(v); got != want {
			t.Errorf("%v as text: %q", v, got)
		}
	}
	if _, ok := Strings([]any{"a", int64(1)}); ok {
		t.Error("a number is no string")
	}
	if c := Clone("x"); c == nil || len(c) != 0 {
		t.Errorf("%v", c)
	}
}
