package shim

import (
	"net"
	"syscall"
	"testing"
	"testing/synctest"
)

// failing is a listener that gives errors, one after the other.
type failing struct {
	net.Listener
	errs []error
}

func (l *failing) Accept() (net.Conn, error) {
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, err
}

// A shim that has no descriptor left for a connection can be reached when it has.
func TestAcceptGoesOnAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := &failing{errs: []error{syscall.EMFILE, syscall.ECONNABORTED, net.ErrClosed}}
		(&Shim{cfg: Config{Listener: ln}}).accept()
		if len(ln.errs) > 0 {
			t.Errorf("it ended before %v", ln.errs)
		}
	})
}
