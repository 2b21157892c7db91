package connect

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/gofiber/fiber/v2"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	pb "github.com/millrace/millrace/schema/process"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
)

// sendInput serves SendInput.
func (h *Handler) sendInput(ctx context.Context, r *call, req *pb.SendInputRequest) (proto.Message, error) {
	return &pb.SendInputResponse{}, h.act(ctx, r, req.GetProcess(), func(s *process.Summary) error {
		return h.input(ctx, r, s, req.GetInput())
	})
}

// input sends input to a process. Its errors have E2B's text.
func (h *Handler) input(ctx context.Context, r *call, s *process.Summary, in *pb.ProcessInput) error {
	switch b := in.GetInput().(type) {
	case *pb.ProcessInput_Stdin:
		if s.Spec.PTY != nil {
			return fail(CodeInternal, "error writing to stdin: tty assigned to process: send pty input instead")
		}
		return stdinError("error writing to stdin", h.send(ctx, r, s, b.Stdin, false))
	case *pb.ProcessInput_Pty:
		if s.Spec.PTY == nil {
			return fail(CodeInternal, "error writing to tty: tty not assigned to process")
		}
		return stdinError("error writing to tty", h.send(ctx, r, s, b.Pty, false))
	}
	return fail(CodeUnimpl, "invalid input type: want stdin or pty")
}

// send sends input, once per Idempotency-Key of the client. The messages of a StreamInput
// have no key: a stream is not retried.
func (h *Handler) send(ctx context.Context, r *call, s *process.Summary, data []byte, eof bool) error {
	if r.key == "" {
		return h.core.SendInput(ctx, r.principal, s.ID, data, eof)
	}
	err := h.core.SendInputOnce(ctx, r.principal, s.ID, r.key, data, eof)
	if kind.Is(err, kind.Conflict) { // of the key, not a closed stdin
		return fail(CodeExists, "%s", kind.Message(err))
	}
	return err
}

// stdinError gives an error about a closed stdin the code and text that E2B uses.
func stdinError(doing string, err error) error {
	if kind.Is(err, kind.Precondition) || kind.Is(err, kind.Conflict) {
		return fail(CodeInternal, "%s: stdin not enabled or closed", doing)
	}
	return err
}

// closeStdin serves CloseStdin.
func (h *Handler) closeStdin(ctx context.Context, r *call, req *pb.CloseStdinRequest) (proto.Message, error) {
	return &pb.CloseStdinResponse{}, h.act(ctx, r, req.GetProcess(), func(s *process.Summary) error {
		if s.Spec.PTY != nil {
			return fail(CodeInternal, "error closing stdin: tty assigned to process: send Ctrl+D (0x04) instead")
		}
		return stdinError("error closing stdin", h.send(ctx, r, s, nil, true))
	})
}

// streamInput serves StreamInput: it handles each message as it arrives, and reads the
// next once the process has accepted the previous one.
func (h *Handler) streamInput(c *fiber.Ctx) error {
	f, ok := formatOf(c.Get(fiber.HeaderContentType))
	if !ok || !f.enveloped {
		return wrongType(c, typeStreamJSON+", "+typeStreamProto)
	}
	err := h.readInput(c, f)
	if err != nil {
		discardInput(c)
	}
	var u *unrouted
	if errors.As(err, &u) {
		return answerUnrouted(c, u)
	}
	c.Set(fiber.HeaderContentType, f.streamType())
	var out []byte
	if err == nil {
		var at int
		if out, at = openEnvelope(out); !f.binary {
			out = append(out, "{}"...)
		}
		out = closeEnvelope(out, at, 0)
	}
	return c.Send(appendEnd(out, err, ""))
}

// Limits on the bytes still read from a client whose input failed: discardWait for the
// next bytes, discardLimit bytes and discardTime in total.
const (
	discardWait  = 50 * time.Millisecond
	discardTime  = 2 * time.Second
	discardLimit = 16 << 20
)

// discardInput reads what the client has already sent: closing a connection with unread
// bytes would lose the response. The client may send without end, so the connection is
// not reused.
func discardInput(c *fiber.Ctx) {
	body := c.Context().RequestBodyStream()
	if body == nil {
		return
	}
	c.Context().SetConnectionClose()
	buf := make([]byte, 32<<10)
	for n, end := 0, time.Now().Add(discardTime); n < discardLimit && time.Now().Before(end); {
		c.Context().Conn().SetReadDeadline(time.Now().Add(discardWait))
		m, err := body.Read(buf)
		if err != nil {
			return
		}
		n += m
	}
}

func (h *Handler) readInput(c *fiber.Ctx, f format) error {
	gzipped, err := encoded(c.Get(headerEncoding))
	if err != nil {
		return err
	}
	r, err := newCall(c, f)
	if err != nil {
		return err
	}
	r.key = ""
	ctx, cancel := r.context(c)
	defer cancel()
	in := inputStream{h: h, r: &r}
	messages := envelopes{r: httpconn.Body(c), gzip: gzipped, max: h.cfg.MaxMessage}
	for {
		raw, err := messages.next()
		if errors.Is(err, io.EOF) {
			return in.end()
		}
		if err == nil {
			var req pb.StreamInputRequest
			if err = f.decode(raw, &req); err == nil {
				err = in.take(ctx, &req)
			}
		}
		if err != nil {
			return err
		}
	}
}

// inputStream is a StreamInput in progress.
type inputStream struct {
	h      *Handler
	r      *call
	target *process.Summary // nil before the start message
}

func (s *inputStream) take(ctx context.Context, req *pb.StreamInputRequest) error {
	switch ev := req.GetEvent().(type) {
	case *pb.StreamInputRequest_Start:
		if s.target != nil {
			return fail(CodeInvalid, "a second start event")
		}
		sum, err := s.h.find(ctx, s.r, ev.Start.GetProcess())
		s.target = &sum
		return err
	case *pb.StreamInputRequest_Data:
		if s.target == nil {
			return fail(CodeInvalid, "the first event must be start")
		}
		err := s.h.input(ctx, s.r, s.target, ev.Data.GetInput())
		if kind.Is(err, kind.NotFound) {
			return fail(CodeNotFound, "process with pid %d not found", s.target.PID)
		}
		return err
	case *pb.StreamInputRequest_Keepalive:
	}
	return nil
}

func (s *inputStream) end() error {
	if s.target == nil {
		return fail(CodeInvalid, "the first event must be start")
	}
	return nil
}
