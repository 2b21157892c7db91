package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/millrace/millrace/e2e/rig"
	pb "github.com/millrace/millrace/schema/process"
)

// procClient is a connect-go client of process.Process without generated code.
type procClient struct {
	start       *connect.Client[pb.StartRequest, pb.StartResponse]
	attach      *connect.Client[pb.ConnectRequest, pb.ConnectResponse]
	list        *connect.Client[pb.ListRequest, pb.ListResponse]
	sendInput   *connect.Client[pb.SendInputRequest, pb.SendInputResponse]
	streamInput *connect.Client[pb.StreamInputRequest, pb.StreamInputResponse]
	sendSignal  *connect.Client[pb.SendSignalRequest, pb.SendSignalResponse]
	closeStdin  *connect.Client[pb.CloseStdinRequest, pb.CloseStdinResponse]
	update      *connect.Client[pb.UpdateRequest, pb.UpdateResponse]
}

// with adds the headers of a sandbox to each request.
type with struct {
	key, sandbox string
	next         http.RoundTripper
}

func (w with) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Api-Key", w.key)
	r.Header.Set("E2b-Sandbox-Id", w.sandbox)
	return w.next.RoundTrip(r)
}

func newProcClient(a *rig.API, sandbox string, opts ...connect.ClientOption) *procClient {
	h := &http.Client{Transport: with{a.Key, sandbox, http.DefaultTransport}}
	base := a.URL + "/process.Process/"
	return &procClient{
		start:       connect.NewClient[pb.StartRequest, pb.StartResponse](h, base+"Start", opts...),
		attach:      connect.NewClient[pb.ConnectRequest, pb.ConnectResponse](h, base+"Connect", opts...),
		list:        connect.NewClient[pb.ListRequest, pb.ListResponse](h, base+"List", opts...),
		sendInput:   connect.NewClient[pb.SendInputRequest, pb.SendInputResponse](h, base+"SendInput", opts...),
		streamInput: connect.NewClient[pb.StreamInputRequest, pb.StreamInputResponse](h, base+"StreamInput", opts...),
		sendSignal:  connect.NewClient[pb.SendSignalRequest, pb.SendSignalResponse](h, base+"SendSignal", opts...),
		closeStdin:  connect.NewClient[pb.CloseStdinRequest, pb.CloseStdinResponse](h, base+"CloseStdin", opts...),
		update:      connect.NewClient[pb.UpdateRequest, pb.UpdateResponse](h, base+"Update", opts...),
	}
}

// eventStream is the common interface of the streams of Start and Connect.
type eventStream interface {
	Receive() bool
	Err() error
	Close() error
}

// collect reads a stream to its end.
func collect(t *testing.T, s eventStream, event func() *pb.ProcessEvent) (out, errs, tty []byte, end *pb.ProcessEvent_EndEvent) {
	t.Helper()
	defer s.Close()
	for s.Receive() {
		switch e := event().GetEvent().(type) {
		case *pb.ProcessEvent_Data:
			out = append(out, e.Data.GetStdout()...)
			errs = append(errs, e.Data.GetStderr()...)
			tty = append(tty, e.Data.GetPty()...)
		case *pb.ProcessEvent_End:
			if end != nil {
				t.Error("a second end")
			}
			end = e.End
		}
	}
	if err := s.Err(); err != nil {
		t.Errorf("stream: %v", err)
	}
	return out, errs, tty, end
}

func pidOf(pid uint32) *pb.ProcessSelector {
	return &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: pid}}
}

func ptr[T any](v T) *T { return &v }

// TestConnectGo calls every method in both codecs, with and without compression.
func TestConnectGo(t *testing.T) {
	a := api(t)
	for _, tt := range []struct {
		name string
		json bool
		opts []connect.ClientOption
	}{
		{"proto", false, nil},
		{"JSON", true, nil},
		{"JSON, requests in gzip", true, []connect.ClientOption{connect.WithSendGzip()}},
		{"proto, requests in gzip", false, []connect.ClientOption{connect.WithSendGzip()}},
	} {
		t.Run(tt.name, func(t *testing.T) { connectGo(t, a, a.Create(t).ID, tt.json, tt.opts...) })
	}
}

func connectGo(t *testing.T, a *rig.API, sandbox string, json bool, opts ...connect.ClientOption) {
	if json {
		opts = append(opts, connect.WithProtoJSON())
	}
	c := newProcClient(a, sandbox, opts...)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	t.Run("run", func(t *testing.T) { goRun(ctx, t, c) })
	t.Run("input", func(t *testing.T) { goInput(ctx, t, c) })
	t.Run("terminal", func(t *testing.T) { goTerminal(ctx, t, c) })
	t.Run("signal", func(t *testing.T) { goSignal(ctx, t, c) })
	t.Run("errors", func(t *testing.T) { goErrors(ctx, t, c) })
}

// begin starts a process and returns its stream and pid.
func begin(ctx context.Context, t *testing.T, c *procClient, req *pb.StartRequest) (*connect.ServerStreamForClient[pb.StartResponse], uint32) {
	t.Helper()
	s, err := c.start.CallServerStream(ctx, connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	if !s.Receive() || s.Msg().GetEvent().GetStart() == nil {
		t.Fatalf("first event %v (%v)", s.Msg(), s.Err())
	}
	return s, s.Msg().GetEvent().GetStart().GetPid()
}

func goRun(ctx context.Context, t *testing.T, c *procClient) {
	s, pid := begin(ctx, t, c, &pb.StartRequest{
		Process: &pb.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-c", "seq 1 1000; echo $A >&2; pwd >&2; exit 3"}, Envs: map[string]string{"A": "b"}, Cwd: ptr("/tmp")},
		Stdin:   ptr(false), Tag: ptr("run"),
	})
	out, errs, _, end := collect(t, s, func() *pb.ProcessEvent { return s.Msg().GetEvent() })
	if n := bytes.Count(out, []byte("\n")); n != 1000 || string(errs) != "b\n/tmp\n" || end.GetExitCode() != 3 || !end.GetExited() || end.GetStatus() != "exit status 3" {
		t.Errorf("%d lines, stderr %q, end %v", n, errs, end)
	}
	again, err := c.attach.CallServerStream(ctx, connect.NewRequest(&pb.ConnectRequest{Process: pidOf(pid)}))
	if err != nil {
		t.Fatal(err)
	}
	out2, errs2, _, end2 := collect(t, again, func() *pb.ProcessEvent { return again.Msg().GetEvent() })
	if !bytes.Equal(out, out2) || !bytes.Equal(errs, errs2) || end2.GetExitCode() != 3 {
		t.Errorf("Connect after the end: %d and %d bytes, end %v", len(out2), len(errs2), end2)
	}
}

func goInput(ctx context.Context, t *testing.T, c *procClient) {
	s, pid := begin(ctx, t, c, &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "/bin/cat"}, Tag: ptr("cat")})
	res, err := c.list.CallUnary(ctx, connect.NewRequest(&pb.ListRequest{}))
	if err != nil || len(res.Msg.GetProcesses()) != 1 || res.Msg.GetProcesses()[0].GetPid() != pid || res.Msg.GetProcesses()[0].GetTag() != "cat" {
		t.Errorf("List: %v (%v)", res, err)
	}
	in := &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: allBytes()}}
	if _, err := c.sendInput.CallUnary(ctx, connect.NewRequest(&pb.SendInputRequest{Process: pidOf(pid), Input: in})); err != nil {
		t.Errorf("SendInput: %v", err)
	}
	up := c.streamInput.CallClientStream(ctx)
	send := func(m *pb.StreamInputRequest) {
		if err := up.Send(m); err != nil {
			t.Errorf("StreamInput: %v", err)
		}
	}
	send(&pb.StreamInputRequest{Event: &pb.StreamInputRequest_Start{Start: &pb.StreamInputRequest_StartEvent{
		Process: &pb.ProcessSelector{Selector: &pb.ProcessSelector_Tag{Tag: "cat"}}}}})
	for range 10 {
		send(&pb.StreamInputRequest{Event: &pb.StreamInputRequest_Data{Data: &pb.StreamInputRequest_DataEvent{Input: in}}})
	}
	send(&pb.StreamInputRequest{Event: &pb.StreamInputRequest_Keepalive{Keepalive: &pb.StreamInputRequest_KeepAlive{}}})
	if _, err := up.CloseAndReceive(); err != nil {
		t.Errorf("StreamInput: %v", err)
	}
	if _, err := c.closeStdin.CallUnary(ctx, connect.NewRequest(&pb.CloseStdinRequest{Process: pidOf(pid)})); err != nil {
		t.Errorf("CloseStdin: %v", err)
	}
	out, _, _, end := collect(t, s, func() *pb.ProcessEvent { return s.Msg().GetEvent() })
	if !bytes.Equal(out, bytes.Repeat(allBytes(), 11)) || end == nil || end.GetExitCode() != 0 {
		t.Errorf("%d bytes, end %v", len(out), end)
	}
}

func goTerminal(ctx context.Context, t *testing.T, c *procClient) {
	s, pid := begin(ctx, t, c, &pb.StartRequest{
		Process: &pb.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-c", "stty size; read x; stty size"}},
		Pty:     &pb.PTY{Size: &pb.PTY_Size{Cols: 80, Rows: 24}},
	})
	if _, err := c.update.CallUnary(ctx, connect.NewRequest(&pb.UpdateRequest{Process: pidOf(pid), Pty: &pb.PTY{Size: &pb.PTY_Size{Cols: 100, Rows: 50}}})); err != nil {
		t.Errorf("Update: %v", err)
	}
	in := &pb.ProcessInput{Input: &pb.ProcessInput_Pty{Pty: []byte("\n")}}
	if _, err := c.sendInput.CallUnary(ctx, connect.NewRequest(&pb.SendInputRequest{Process: pidOf(pid), Input: in})); err != nil {
		t.Errorf("SendInput: %v", err)
	}
	_, _, tty, end := collect(t, s, func() *pb.ProcessEvent { return s.Msg().GetEvent() })
	if !bytes.HasSuffix(tty, []byte("50 100\r\n")) || end.GetExitCode() != 0 {
		t.Errorf("%q, end %v", tty, end)
	}
}

func goSignal(ctx context.Context, t *testing.T, c *procClient) {
	for _, sig := range []pb.Signal{pb.Signal_SIGNAL_SIGKILL, pb.Signal_SIGNAL_SIGTERM} {
		s, pid := begin(ctx, t, c, &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "/bin/sleep", Args: []string{"60"}}, Stdin: ptr(false)})
		if _, err := c.sendSignal.CallUnary(ctx, connect.NewRequest(&pb.SendSignalRequest{Process: pidOf(pid), Signal: sig})); err != nil {
			t.Errorf("SendSignal: %v", err)
		}
		_, _, _, end := collect(t, s, func() *pb.ProcessEvent { return s.Msg().GetEvent() })
		if end.GetExited() || end.GetExitCode() != -1 {
			t.Errorf("%v: end %v", sig, end)
		}
	}
}

func goErrors(ctx context.Context, t *testing.T, c *procClient) {
	_, err := c.sendSignal.CallUnary(ctx, connect.NewRequest(&pb.SendSignalRequest{Process: pidOf(4194301), Signal: pb.Signal_SIGNAL_SIGKILL}))
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("unknown pid: %v", err)
	}
	s, err := c.start.CallServerStream(ctx, connect.NewRequest(&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "/bin/true", Cwd: ptr("/nope")}}))
	if err != nil {
		t.Fatal(err)
	}
	if s.Receive() || connect.CodeOf(s.Err()) != connect.CodeInvalidArgument {
		t.Errorf("missing cwd: %v %v", s.Msg(), s.Err())
	}
	s.Close()
	// The client's timeout is the process's timeout.
	short, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
	defer cancel()
	s, err = c.start.CallServerStream(short, connect.NewRequest(&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "/bin/sleep", Args: []string{"60"}}}))
	if err != nil {
		t.Fatal(err)
	}
	for s.Receive() {
	}
	if err := s.Err(); connect.CodeOf(err) != connect.CodeDeadlineExceeded && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("timeout: %v", err)
	}
	s.Close()
}
