package kubeapiserver

import "testing"

// TestEnding: whose end ends a process, for each way in which programs are started.
func TestEnding(t *testing.T) {
	for name, x := range map[string]struct {
		r    relation
		want ending
	}{
		"child of a test":                         {relation{pid: 90, session: 50, first: 80, parent: 80, parentSession: 50}, withParent},
		"child of the shell that leads":           {relation{pid: 90, session: 50, first: 50, parent: 50, parentSession: 50}, withParent},
		"the test was killed":                     {relation{pid: 90, session: 50, first: 80, parent: 1, parentSession: 1}, orphan},
		"it was killed before anything was asked": {relation{pid: 90, session: 50, first: 1, parent: 1, parentSession: 1}, orphan},
		"that, and a subreaper has adopted":       {relation{pid: 90, session: 50, first: 20, parent: 20, parentSession: 20}, orphan},
		"killed soon, a subreaper of the session": {relation{pid: 90, session: 50, first: 80, parent: 60, parentSession: 50}, orphan},
		"killed, init outside of the sessions":    {relation{pid: 90, session: 50, first: 1, parent: 1, parentSession: 0}, orphan},
		"killed, tests are what a container runs": {relation{pid: 90, session: 1, first: 80, parent: 1, parentSession: 1}, orphan},
		"systemd unit":                            {relation{pid: 90, session: 90, first: 1, parent: 1, parentSession: 1}, alone},
		"unit of a user":                          {relation{pid: 90, session: 90, first: 20, parent: 20, parentSession: 20}, alone},
		"kwokctl, which is gone soon":             {relation{pid: 90, session: 90, first: 80, parent: 1, parentSession: 1}, alone},
		"setsid of a shell that is gone":          {relation{pid: 90, session: 90, first: 1, parent: 1, parentSession: 1}, alone},
		"first process of a container":            {relation{pid: 1, session: 1, first: 0, parent: 0, parentSession: 1}, alone},
		"first of a namespace, no session":        {relation{pid: 1, session: 0, first: 0, parent: 0, parentSession: 0}, alone},
		"container behind tini":                   {relation{pid: 7, session: 1, first: 1, parent: 1, parentSession: 1}, alone},
		"container with the PID namespace of Pod": {relation{pid: 7, session: 7, first: 0, parent: 0, parentSession: 7}, alone},
	} {
		if got := x.r.ending(); got != x.want {
			t.Errorf("%s: %d, want %d", name, got, x.want)
		}
	}
}
