package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	// protocol is what is upgraded to. A change of what is behind it has another name.
	protocol = "quorate-tunnel-1"
	// Path is below which all tunnels are.
	Path         = "/quorate/tunnels/"
	nodesPath    = Path + "nodes/"
	networksPath = Path + "networks"

	// agentHeader is a word in the request that each process of an agent has chosen.
	agentHeader  = "Quorate-Tunnel-Agent"
	maxAgentWord = 64 // bytes; crypto/rand.Text makes 26
	// replacedPrefix begins what is in the place of an address when a node ends a tunnel because another
	// agent has opened it: the rest says so.
	replacedPrefix = "!replaced: "
	anotherAgent   = "another agent has opened a tunnel of this name"
	// tellTime bounds the telling.
	tellTime = time.Second

	// maxText bounds addresses and what an agent says about a dial that failed.
	maxText = 1 << 10
	// maxStreams bounds the connections through one tunnel. Each buffers at most window bytes in each
	// direction.
	maxStreams = 256
	window     = 256 << 10
	// maxOpening bounds those that are being made; yamux waits above that, whatever the context says.
	maxOpening = 64
	// maxPings bounds how often a peer may ask for a sign of life within writeTime. yamux answers each
	// in a goroutine, which waits as long as that for a peer that does not read.
	maxPings  = 16
	writeTime = 5 * time.Second
	// dialTime bounds a dial at the agent's.
	dialTime = 10 * time.Second
)

// config of both ends.
func config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog = maxOpening
	c.KeepAliveInterval = 10 * time.Second // a peer that is silent is gone after this and the next
	c.ConnectionWriteTimeout = writeTime
	c.MaxStreamWindowSize = window
	c.StreamOpenTimeout = 2 * dialTime
	c.StreamCloseTimeout = 5 * time.Second
	c.LogOutput, c.Logger = nil, log.New(io.Discard, "", 0) // what ends a tunnel is logged by its owner
	return c
}

// writeText writes a text with its length.
func writeText(w io.Writer, prefix []byte, text string) error {
	if len(text) > maxText {
		text = text[:maxText]
	}
	_, err := w.Write(append(binary.BigEndian.AppendUint16(prefix, uint16(len(text))), text...))
	return err
}

func readText(r io.Reader) (string, error) {
	var n [2]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return "", err
	}
	size := binary.BigEndian.Uint16(n[:])
	if size > maxText {
		return "", fmt.Errorf("a text of %d bytes: at most %d are allowed", size, maxText)
	}
	text := make([]byte, size)
	_, err := io.ReadFull(r, text)
	return string(text), err
}

// readAnswer reads what an agent says of a dial.
func readAnswer(r io.Reader) error {
	var code [1]byte
	if _, err := io.ReadFull(r, code[:]); err != nil {
		return fmt.Errorf("the agent does not answer: %w", err)
	}
	if code[0] == 0 {
		return nil
	}
	text, err := readText(r)
	if err != nil {
		return fmt.Errorf("the agent's answer: %w", err)
	}
	return &refusal{text}
}

// refusal is an agent's.
type refusal struct{ text string }

func (r *refusal) Error() string { return fmt.Sprintf("the agent: %.200q", r.text) }

// errEnded says that a tunnel is not there any more.
var errEnded = errors.New("the tunnel has ended")

// errPings is why a tunnel ends.
var errPings = errors.New("too many pings")

// guarded is a connection that ends when its peer sends more pings than one that is well. It reads the
// heads of yamux's frames as they pass: a byte for the version, one for the type, two for flags, four
// each for the stream and a length. Behind those of type 0 come as many bytes. It is for one reader.
type guarded struct {
	io.ReadWriteCloser
	head  [12]byte
	has   int    // bytes of head
	skip  uint32 // bytes of data that are still to come
	pings int    // since
	since time.Time
}

func (g *guarded) Read(p []byte) (int, error) {
	n, err := g.ReadWriteCloser.Read(p)
	if !g.pass(p[:n]) {
		return 0, errPings
	}
	return n, err
}

// pass looks at what was read, and reports whether it may go on.
func (g *guarded) pass(p []byte) bool {
	for len(p) > 0 {
		if g.skip > 0 {
			n := min(uint64(g.skip), uint64(len(p)))
			p, g.skip = p[n:], g.skip-uint32(n)
			continue
		}
		n := copy(g.head[g.has:], p)
		p, g.has = p[n:], g.has+n
		if g.has < len(g.head) {
			return true
		}
		g.has = 0
		switch flags := binary.BigEndian.Uint16(g.head[2:]); g.head[1] {
		case 0:
			g.skip = binary.BigEndian.Uint32(g.head[8:])
		case 2: // a ping, or with another flag the answer to one
			if flags&1 != 0 && !g.ping() {
				return false
			}
		}
	}
	return true
}

func (g *guarded) ping() bool {
	if now := time.Now(); now.Sub(g.since) > writeTime {
		g.pings, g.since = 0, now
	}
	g.pings++
	return g.pings <= maxPings
}
