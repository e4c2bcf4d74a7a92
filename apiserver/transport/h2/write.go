package h2

import (
	"crypto/tls"
	"encoding/binary"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const (
	frameHeader = 9
	// maxOut is how many bytes may wait for the connection before streams wait in their turn.
	maxOut = 64 << 10
	// maxDataFrame is how long a frame is at most, whatever the client takes: a TLS record.
	maxDataFrame = 16 << 10
	// maxData is what a DATA frame carries at most: with its header it fills a TLS record. If each had nine bytes more, four
	// of them would be five records.
	maxData = maxDataFrame - frameHeader
	// smallOut and largeOut are the sizes of buffers.
	smallOut = 16 << 10
	largeOut = maxOut + 2*maxDataFrame
	// writesForOthers is how often in a row a goroutine writes what others have added meanwhile.
	writesForOthers = 4
)

// Connections that have nothing to write have no buffer.
var (
	smallBuffers = sync.Pool{New: func() any { return new([smallOut]byte) }}
	largeBuffers = sync.Pool{New: func() any { return new([largeOut]byte) }}
)

// room makes room for n more bytes of frames. mu is held.
func (c *conn) room(n int) {
	need := len(c.out) + n
	if need <= cap(c.out) {
		return
	}
	var b []byte
	switch {
	case need <= smallOut:
		b = smallBuffers.Get().(*[smallOut]byte)[:0]
	case need <= largeOut:
		b = largeBuffers.Get().(*[largeOut]byte)[:0]
	default:
		return // it grows
	}
	b = append(b, c.out...)
	giveBuffer(c.out)
	c.out = b
}

func giveBuffer(b []byte) {
	switch cap(b) {
	case smallOut:
		smallBuffers.Put((*[smallOut]byte)(b[:smallOut]))
	case largeOut:
		largeBuffers.Put((*[largeOut]byte)(b[:largeOut]))
	}
}

// flush writes what waits, unless another goroutine is writing: that one writes this too. It
// yields the processor first: answers that are ready to be added share the write. mu is held, and is
// released meanwhile.
func (c *conn) flush() {
	if c.writing || !c.waits() || c.closed != nil {
		return
	}
	c.writing = true
	if len(c.out) < maxDataFrame {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	for n := 0; c.waits() && c.closed == nil; n++ {
		if n == writesForOthers {
			go c.takeOver()
			return
		}
		c.write()
	}
	c.writing = false
}

// takeOver goes on writing for a goroutine that has something else to do.
func (c *conn) takeOver() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.waits() && c.closed == nil {
		c.write()
	}
	c.writing = false
}

// waits reports whether there is something to write. mu is held.
func (c *conn) waits() bool { return len(c.out)+len(c.behind) > 0 }

// write writes what waits now. mu is held, and is released meanwhile.
func (c *conn) write() {
	if len(c.out) == 0 {
		c.out, c.behind = append(c.out, c.behind...), nil
	}
	buf, behind := c.out, c.behind
	c.out, c.behind, c.control = nil, nil, 0
	// Streams have their own time. But if they are all reset, nothing but this ends a write that
	// the client does not take, and the handler which happens to do it.
	if t := c.s.http.WriteTimeout; t > 0 {
		c.writeBy = time.Now().Add(t)
		c.wakeAt(c.writeBy)
	}
	c.mu.Unlock()
	err := c.writeTLS(buf)
	giveBuffer(buf)
	c.mu.Lock()
	c.wrote()
	c.writes++
	c.writeBy = time.Time{}
	if len(behind) > 0 {
		c.room(len(behind))
		c.out = append(c.out, behind...)
	}
	if err != nil {
		c.fail(err)
	}
	c.wakeNext()
}

// flushAside is flush for who must not wait for the client. mu is held.
func (c *conn) flushAside() {
	if c.writing || !c.waits() || c.closed != nil {
		return
	}
	c.writing = true
	go c.takeOver()
}

// timeOut ends a stream whose client has not taken it in time. mu is held.
func (c *conn) timeOut(st *stream) {
	c.reset(st.id, http2.ErrCodeInternal)
	c.checkStalled()
}

// checkStalled ends the connection if the write that is under way does not end soon: a client that takes
// nothing will not take a reset either. mu is held.
func (c *conn) checkStalled() {
	if !c.writing || c.stalledChecks {
		return
	}
	c.stalledChecks = true
	writes := c.writes
	time.AfterFunc(stalledWrite, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stalledChecks = false
		if c.writing && c.writes == writes {
			c.fail(errClientGone)
		}
	})
}

func appendHeader(b []byte, length int, kind http2.FrameType, flags http2.Flags, id uint32) []byte {
	b = append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	return binary.BigEndian.AppendUint32(b, id)
}

func appendSettings(b []byte, settings [][2]uint32) []byte {
	b = appendHeader(b, 6*len(settings), http2.FrameSettings, 0, 0)
	for _, s := range settings {
		b = binary.BigEndian.AppendUint16(b, uint16(s[0]))
		b = binary.BigEndian.AppendUint32(b, s[1])
	}
	return b
}

func appendSettingsAck(b []byte) []byte {
	return appendHeader(b, 0, http2.FrameSettings, http2.FlagSettingsAck, 0)
}

func appendPingAck(b []byte, data [8]byte) []byte {
	return append(appendHeader(b, len(data), http2.FramePing, http2.FlagPingAck, 0), data[:]...)
}

func appendWindowUpdate(b []byte, id, n uint32) []byte {
	return binary.BigEndian.AppendUint32(appendHeader(b, 4, http2.FrameWindowUpdate, 0, id), n)
}

func appendReset(b []byte, id uint32, code http2.ErrCode) []byte {
	return binary.BigEndian.AppendUint32(appendHeader(b, 4, http2.FrameRSTStream, 0, id), uint32(code))
}

func appendGoAway(b []byte, last uint32, code http2.ErrCode) []byte {
	b = binary.BigEndian.AppendUint32(appendHeader(b, 8, http2.FrameGoAway, 0, 0), last)
	return binary.BigEndian.AppendUint32(b, uint32(code))
}

// appendHeaders appends a block of headers as one frame, or as several.
func appendHeaders(b, block []byte, maxFrame int, id uint32, endStream bool) []byte {
	flags := http2.Flags(0)
	if endStream {
		flags = http2.FlagHeadersEndStream
	}
	for kind := http2.FrameHeaders; ; kind, flags = http2.FrameContinuation, 0 {
		n := min(len(block), maxFrame)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders // the same bit in CONTINUATION
		}
		b = append(appendHeader(b, n, kind, flags, id), block[:n]...)
		if block = block[n:]; len(block) == 0 {
			return b
		}
	}
}

// allowedSuite reports whether HTTP/2 allows the cipher: those of TLS 1.2 without forward secrecy or
// authenticated encryption it does not (RFC 9113, 9.2.2).
func allowedSuite(s *tls.ConnectionState) bool {
	if s.Version >= tls.VersionTLS13 {
		return true
	}
	switch s.CipherSuite {
	case tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256:
		return s.Version == tls.VersionTLS12
	}
	return false
}
