package codec

import (
	"fmt"
	"time"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/printers"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"k8s.io/apimachinery/pkg/util/duration"
)

// cells are the cells of one row, as JSON but for the ages in it: these are put in
// when the row is written, so that the rest is made once for every table and watch.
type cells struct {
	bytes []byte
	ages  []age
}

// age is a place in the bytes of cells where it says how long ago a moment was.
type age struct {
	at    int
	since time.Time
}

// ageSize is what one age takes in memory, in bytes.
const ageSize = 32

// append appends the cells as they are at a time.
func (c cells) append(b []byte, now time.Time) []byte {
	at := 0
	for _, a := range c.ages {
		b = append(b, c.bytes[at:a.at]...)
		b = append(b, duration.HumanDuration(now.Sub(a.since))...)
		at = a.at
	}
	return append(b, c.bytes[at:]...)
}

// cellsOf makes the cells of an object. The columns of a resource with a Conversion are
// about the version that is stored.
func (t *table) cellsOf(obj map[string]any) (cells, error) {
	shown := obj
	if t.res != nil && t.res.Conversion != "" {
		var err error
		if shown, err = t.res.ToStored(obj); err != nil {
			return cells{}, err
		}
	}
	row, err := t.rows.Row(shown)
	if err != nil {
		return cells{}, fmt.Errorf("columns of %v: %w", obj["kind"], err)
	}
	e := getEncoder()
	defer putEncoder(e)
	var ages []age
	e.b = append(e.b, '[')
	for i, cell := range row {
		if i > 0 {
			e.b = append(e.b, ',')
		}
		ageing, ok := cell.(printers.Ageing)
		if !ok {
			if err := e.value(cell, 0); err != nil {
				return cells{}, err
			}
			continue
		}
		e.b = appendString(e.b, ageing.Before)
		e.b = e.b[:len(e.b)-1] // its end quote
		ages = append(ages, age{at: len(e.b), since: ageing.Since})
		after := len(e.b)
		e.b = appendString(e.b, ageing.After)
		e.b = append(e.b[:after], e.b[after+1:]...) // its first quote
	}
	e.b = append(e.b, ']')
	return cells{bytes: append([]byte(nil), e.b...), ages: ages}, nil
}

// versionCells are the cells of a version, made on first demand and kept with it.
func (t *table) versionCells(res *kinds.Resource, v *mvcc.Version, rev proto.Revision) (cells, error) {
	return derive(tableCells, res, v, rev, t.rows, func() (cells, error) {
		obj, err := revisedTree(res, v, rev)
		if err != nil {
			return cells{}, err
		}
		return t.cellsOf(obj)
	})
}
