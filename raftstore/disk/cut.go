package disk

// cut removes the entries from min to max from the disk.
//
// A cut of the log's beginning is made in pieces, a file each: there can be many files to
// remove, and an append waits only for the piece that is under way.
//
// The invariant is that the process may end between any two pieces. The pieces go from the
// log's oldest entry on: what is left is the end of the log, without a hole, and a snapshot
// covers all of the range, or it would not be cut. A range that reaches the last entry is
// a truncation: it is one write.
//
// Nobody is given an entry of the range once cut has begun, whatever is on disk.
func (l *Log) cut(min, max uint64) error {
	// One after the other: gone is one mark. A lock that virtual time can pass under.
	l.cuts <- struct{}{}
	defer func() { <-l.cuts }()
	first, err := l.backend.FirstIndex()
	if err != nil {
		return err
	}
	last, err := l.backend.LastIndex()
	if err != nil {
		return err
	}
	if first == 0 || max < first || min > last || min > max {
		return nil
	}
	if min > first || max >= last {
		l.cache.remove(min, max)
		if err := l.write("delete entries", func() error { return l.backend.DeleteRange(min, max) }); err != nil {
			return err
		}
		if max >= last {
			l.shortened.Store(true)
		}
		return nil
	}
	l.gone.Store(max)
	defer l.gone.Store(0)
	l.cache.remove(min, max)
	for more := true; more; {
		err := l.write("cut the log", func() (err error) {
			more, err = l.backend.DeleteFront(max)
			return err
		})
		if err != nil {
			return err
		}
		failpoint("log.piece")
	}
	return nil
}
