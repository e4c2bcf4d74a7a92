package apiserver

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/raftstore/mvcc"
)

func (c *call) update() error {
	f, sent, err := c.readWrite("UpdateOptions")
	if err != nil {
		return err
	}
	if err := c.MatchPath(sent); err != nil {
		return err
	}
	w, err := c.GuaranteedUpdate(c.Key(), func(cur *mvcc.Version) (objects.Change, error) {
		return c.DecideUpdate(sent, cur)
	})
	if err != nil {
		return err
	}
	return c.answer(f, codeOf(w.Created), w)
}
