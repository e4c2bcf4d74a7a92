package codec

// Large values are not collected in buffers: a watch event of 1 MB would be copied for each of its watchers, into
// memory that is garbage behind it. Stored bytes never change, and neither do messages that are shared, so they are
// given to the connection as they are, however long it takes; what stands around them goes the usual way.

const (
	// sharedAbove is from how many bytes on that is done. Newest values of up to 64 KiB may be packed (package mvcc):
	// they have no bytes to be shared, and are put together in a buffer.
	sharedAbove = 64<<10 + 1
	// sharedTail is what is copied of the end of a large value all the same, so that the few bytes behind it share
	// a TLS record with it: else they would be one of their own.
	sharedTail = 3 << 10
)

// shared writes what b has, and p, but for its end, which it leaves in the buffer that it returns. p must not be
// changed by anybody.
func (e *EventWriter) shared(b, p []byte) ([]byte, error) {
	*e.buf = b
	if err := e.send(); err != nil {
		return nil, err
	}
	n := len(p) - sharedTail
	if _, err := e.w.Write(p[:n]); err != nil {
		e.buf = nil // as in send
		return nil, err
	}
	return append(*e.buf, p[n:]...), nil
}

// shares reports whether an event is written by shared. A message is one piece.
func (e *EventWriter) shares(size int) bool { return size >= sharedAbove && e.message == nil }

// shares reports whether so many bytes are written by shared. A body that is indented or turned into YAML
// is collected first, and so is one of which it is not known whether it is compressed.
func (o *output) shares(size int) bool {
	return size >= sharedAbove && !o.f.Pretty && o.f.MediaType != YAML &&
		(o.started || !o.mayGzip || o.waiting+len(o.buf)+size > gzipAbove)
}

// shared is EventWriter.shared for a body.
func (o *output) shared(p []byte) {
	if !o.started {
		o.start()
	}
	o.write()
	n := len(p) - sharedTail
	o.writeOf(p[:n])
	o.buf = append(o.buf, p[n:]...)
}
