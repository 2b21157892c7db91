package hostd

import (
	"io"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// The port of the egress proxy is not reachable through a sandbox's ports.
func TestProxyPortIsNotReachableFromOutside(t *testing.T) {
	r := newRigOn(t, "namespace")
	r.cfg.Egress = true
	epoch := r.beginHere()
	id := r.request(sandbox.Requested{Template: "host", AllowInternet: true})
	if s := r.awaitPhase(id, sandbox.PhaseRunning); !s.IsRunning() {
		t.Skipf("the driver does not work here: %s", s.Cause)
	}
	rec := r.whole(r.start(id, process.Spec{Cmd: "bash", Args: []string{"-c", "</dev/tcp/127.0.0.1/3128"}}))
	if got := describe(rec.end()); got != "exited 0" {
		t.Fatalf("proxy from inside the sandbox: %s: %s", got, rec.out[process.Stderr])
	}
	tunnels := r.log.Tunnels()
	defer tunnels.Close()
	for _, port := range []string{"3128", "03128"} {
		s, err := tunnels.Open(r.ctx(), hostName, epoch, string(id)+":"+port)
		if err == nil {
			io.WriteString(s, "CONNECT / HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n")
			said, _ := io.ReadAll(io.LimitReader(s, 32))
			t.Errorf("port %s answered %q", port, said)
			s.Close()
		} else if !kind.Is(err, kind.Precondition) || kind.Message(err) != "the port is not open" {
			t.Errorf("port %s: %v", port, err)
		}
	}
}
