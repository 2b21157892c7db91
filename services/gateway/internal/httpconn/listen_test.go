package httpconn_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/millrace/millrace/services/gateway/internal/httpconn"
)

// failingListener is a listener that fails a number of times for lack of descriptors.
type failingListener struct {
	net.Listener
	errs []error
}

func (p *failingListener) Accept() (net.Conn, error) {
	if len(p.errs) > 0 {
		err := p.errs[0]
		p.errs = p.errs[1:]
		return nil, &net.OpError{Op: "accept", Err: err}
	}
	c, _ := net.Pipe()
	return c, nil
}

func TestListenSurvivesALackOfDescriptors(t *testing.T) {
	ln := httpconn.Listen(&failingListener{errs: []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS}})
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := httpconn.Listen(&failingListener{errs: []error{net.ErrClosed}}).Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
}
