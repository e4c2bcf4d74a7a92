package codec

import (
	"fmt"
	"strconv"
	"time"

	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// table appends the parts of one Table.
type table struct {
	columns []kinds.Column
	rows    rowPrinter
	now     time.Time
	res     *kinds.Resource
}

// rowPrinter makes the cells of one object. *kinds.Printer is one.
type rowPrinter interface {
	Row(obj map[string]any, now time.Time) ([]any, error)
}

func newTable(res *kinds.Resource) (*table, error) {
	p, err := kinds.CompileColumns(res)
	if err != nil {
		return nil, err
	}
	return &table{columns: p.Columns(), rows: p, now: time.Now(), res: res}, nil
}

// head appends a Table up to its rows. Without columns, clients go on with those
// of an earlier Table of the same watch.
func (t *table) head(b []byte, version string, m ListMeta, columns bool) []byte {
	b = appendType(b, "Table", metav1.GroupName, version)
	b = append(b, `"metadata":`...)
	b = m.append(b)
	b = append(b, `,"columnDefinitions":`...)
	if !columns {
		return append(b, `null,"rows":[`...)
	}
	b = append(b, '[')
	for i, c := range t.columns {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"name":`...)
		b = appendString(b, c.Name)
		b = append(b, `,"type":`...)
		b = appendString(b, c.Type)
		b = append(b, `,"format":`...)
		b = appendString(b, c.Format)
		b = append(b, `,"description":`...)
		b = appendString(b, c.Description)
		b = append(b, `,"priority":`...)
		b = strconv.AppendInt(b, int64(c.Priority), 10)
		b = append(b, '}')
	}
	return append(b, `],"rows":[`...)
}

const tableEnd = "]}"

// row appends the cells of an object and then object, or null.
func (t *table) row(b []byte, obj map[string]any, object []byte) ([]byte, error) {
	shown := obj
	if t.res != nil {
		var err error
		if shown, err = t.res.ToStored(obj); err != nil {
			return b, err
		}
	}
	cells, err := t.rows.Row(shown, t.now)
	if err != nil {
		return b, fmt.Errorf("columns of %v: %w", obj["kind"], err)
	}
	e := getEncoder()
	defer putEncoder(e)
	if cells == nil {
		cells = []any{}
	}
	if err := e.value(cells, 0); err != nil {
		return b, err
	}
	b = append(b, `{"cells":`...)
	b = append(b, e.b...)
	b = append(b, `,"object":`...)
	if object == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, object...)
	}
	return append(b, '}'), nil
}

// versionRow appends the row of a version.
func (t *table) versionRow(b []byte, f Format, res *kinds.Resource, v *mvcc.Version, rev proto.Revision) ([]byte, error) {
	obj, err := revisedTree(res, v, rev)
	if err != nil {
		return b, err
	}
	var object []byte
	switch f.IncludeObject {
	case metav1.IncludeNone:
	case metav1.IncludeObject:
		object, err = appendObject(nil, res, v, rev)
	default:
		object, err = appendPartial(nil, f.AsVersion, res, v, rev)
	}
	if err != nil {
		return b, err
	}
	return t.row(b, obj, object)
}

// treeRow appends the row of an object that is not stored.
func (t *table) treeRow(b []byte, f Format, obj map[string]any, policy metav1.IncludeObjectPolicy) ([]byte, error) {
	var object []byte
	var err error
	switch policy {
	case metav1.IncludeNone:
	case metav1.IncludeObject:
		object, err = appendTree(nil, Format{}, obj)
	default:
		object, err = appendTree(nil, Format{As: AsMetadata, AsVersion: f.AsVersion}, obj)
	}
	if err != nil {
		return b, err
	}
	return t.row(b, obj, object)
}

// tableOf writes a Table of versions, row by row.
func (o *output) tableOf(f Format, res *kinds.Resource, items []*mvcc.Version, m ListMeta) error {
	t, err := newTable(res)
	if err != nil {
		return err
	}
	o.buf = t.head(o.buf, f.AsVersion, m, true)
	for i, v := range items {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		if o.buf, err = t.versionRow(o.buf, f, res, v, v.Revision); err != nil {
			return err
		}
		if f.MediaType == JSON && !f.Pretty {
			if err := o.spill(); err != nil {
				return err
			}
		}
	}
	o.buf = append(o.buf, tableEnd...)
	o.buf = append(o.buf, '\n')
	return nil
}

func (o *output) tableOfTree(f Format, res *kinds.Resource, obj map[string]any) error {
	t, err := newTable(res)
	if err != nil {
		return err
	}
	m := ListMeta{Remaining: -1}
	if meta, ok := obj["metadata"].(map[string]any); ok {
		if s, ok := meta["resourceVersion"].(string); ok {
			if n, err := strconv.ParseUint(s, 10, 64); err == nil {
				m.Revision = proto.Revision(n)
			}
		}
	}
	o.buf = t.head(o.buf, f.AsVersion, m, true)
	if o.buf, err = t.treeRow(o.buf, f, obj, f.IncludeObject); err != nil {
		return err
	}
	o.buf = append(o.buf, tableEnd...)
	o.buf = append(o.buf, '\n')
	return nil
}
