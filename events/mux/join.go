package mux

import "io"

// Joined is what Join takes: a *Stream, a TCP or unix connection...
type Joined interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Join carries bytes both ways until both directions have ended, then closes
// both. An end in order of one is passed on as such; anything else cuts the
// other, so that nobody takes it for an end. It gives the first error.
func Join(a, b Joined) error {
	back := make(chan error, 1)
	go func() { back <- half(a, b) }()
	err := half(b, a)
	if other := <-back; err == nil {
		err = other
	}
	a.Close() //nolint:errcheck // both directions have ended
	b.Close() //nolint:errcheck // both directions have ended
	return err
}

// half carries one direction.
func half(dst, src Joined) error {
	_, err := io.Copy(dst, src)
	if err == nil {
		err = dst.CloseWrite()
	}
	if err != nil {
		Cut(dst, err)
		Cut(src, err)
	}
	return err
}

// Cut ends a connection so that its peer does not take it for an end in order.
func Cut(c io.Closer, err error) {
	switch c := c.(type) {
	case interface{ Abort(err error) }: // a *Stream, or what wraps one
		c.Abort(err)
		return
	case interface{ SetLinger(sec int) error }:
		c.SetLinger(0) //nolint:errcheck // then it ends in order
	}
	c.Close() //nolint:errcheck // it is given up
}
