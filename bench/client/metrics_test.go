package client

import "testing"

func TestMetrics(t *testing.T) {
	was := ParseMetrics([]byte("# HELP x y\n# TYPE x counter\nx_sum{to=\"a b\"} 1\nx_count{to=\"a b\"} 1\nx_sum{to=\"c\"} 2\nx_count{to=\"c\"} 2\nxx 5\n"))
	is := ParseMetrics([]byte("x_sum{to=\"a b\"} 1.5\nx_count{to=\"a b\"} 3\nx_sum{to=\"c\"} 3.5\nx_count{to=\"c\"} 4\nxx 7\nnonsense\ny 1e3\n"))
	if n, mean := Observed(was, is, "x"); n != 4 || mean != 500 {
		t.Errorf("all: %d, %g ms", n, mean)
	}
	if n, mean := Observed(was, is, `x{to="a b"}`); n != 2 || mean != 250 {
		t.Errorf("one: %d, %g ms", n, mean)
	}
	if n, mean := Observed(was, is, "z"); n != 0 || mean != 0 {
		t.Errorf("none: %d, %g ms", n, mean)
	}
	if is.Sum("xx")-was.Sum("xx") != 2 || is.Sum("y")-was.Sum("y") != 1000 {
		t.Errorf("counters: %g, %g", is.Sum("xx")-was.Sum("xx"), is.Sum("y")-was.Sum("y"))
	}
}
