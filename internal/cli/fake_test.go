package cli

import (
	"bytes"
	"io"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/cli/clitest"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
)

// fakeGateway is a fake gateway against which commands are run.
type fakeGateway struct {
	*clitest.Gateway
	t *testing.T
}

func newFakeGateway(t *testing.T, record ...string) *fakeGateway {
	t.Helper()
	return &fakeGateway{clitest.NewGateway(t, record...), t}
}

// result is the outcome of a command.
type result struct {
	code        int
	say         string
	out, errOut string
}

// syncBuffer is a buffer that is safe for concurrent use.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// verb runs a command against the fake gateway.
func (g *fakeGateway) verb(in io.Reader, args ...string) result {
	g.t.Helper()
	env := map[string]string{"MILLRACE_URL": g.Server.URL, "MILLRACE_API_KEY": "e2b_00", "HOME": g.t.TempDir()}
	return verb(g.t, env, in, args...)
}

func verb(t *testing.T, env map[string]string, in io.Reader, args ...string) result {
	t.Helper()
	var out, errOut syncBuffer
	cfg := command.Config{In: in, Out: &out, Err: &errOut, LookupEnv: func(k string) (v string, ok bool) { v, ok = env[k]; return }, Version: "test"}
	for _, c := range Commands(cfg) {
		if c.Name() != args[0] {
			continue
		}
		c.SetArgs(args[1:])
		c.SetOut(&out)
		c.SetErr(&errOut)
		c.SilenceErrors = true
		code, say := output.ExitCode(c.ExecuteContext(t.Context()))
		return result{code, say, out.String(), errOut.String()}
	}
	t.Fatalf("command %s does not exist", args[0])
	return result{}
}
