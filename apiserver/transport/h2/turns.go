package h2

// turnConn is a connection below TLS whose bulk writes wait for turns, as package listener's do. It gives a turn back
// after each write, unless it is told to hold it.
type turnConn interface {
	// Hold: more writes follow at once.
	Hold()
	// Release: they do not.
	Release()
}

// holdTurn says that the stream which appends frames goes on when these are written. mu is held.
func (c *conn) holdTurn() {
	if c.turns != nil {
		c.holds = true
	}
}

// releaseTurn is called before that stream waits for anything, and when it has no more. mu is held.
func (c *conn) releaseTurn() {
	if c.holds {
		c.holds = false
		c.turns.Release()
	}
}

// writeTLS writes frames, in one turn if they are many. mu is not held.
func (c *conn) writeTLS(b []byte) error {
	if c.turns != nil && len(b) >= maxDataFrame {
		c.turns.Hold()
	}
	_, err := c.tls.Write(b)
	return err
}

// wrote is called behind writeTLS, with mu held.
func (c *conn) wrote() {
	if c.turns != nil && !c.holds {
		c.turns.Release()
	}
}
