package connect

import (
	"errors"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// stream serves one server-streaming method. A failure before the stream begins is
// also reported in the stream, with HTTP status 200.
func (h *Handler) stream(do func(*fiber.Ctx, *call, []byte) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		f, ok := formatOf(c.Get(fiber.HeaderContentType))
		if !ok {
			return wrongType(c, strings.Join([]string{typeStreamJSON, typeStreamProto, typeJSON, typeProto}, ", "))
		}
		// The whole request is read before the first byte of the response: a proxy
		// that receives both at once loses some of them.
		raw, err := h.streamMessage(c, f)
		if err != nil && !httpconn.DiscardBody(c) {
			c.Context().SetConnectionClose()
		}
		if err == nil {
			var r call
			if r, err = newCall(c, f); err == nil {
				err = do(c, &r, raw)
			}
		}
		var u *unrouted
		switch {
		case err == nil:
			return nil
		case errors.As(err, &u):
			return answerUnrouted(c, u)
		}
		c.Set(fiber.HeaderContentType, f.streamType())
		return c.Send(appendEnd(nil, err, ""))
	}
}

// streamMessage reads the single message of the request, in an envelope or, as
// some clients send it, without one.
func (h *Handler) streamMessage(c *fiber.Ctx, f format) ([]byte, error) {
	if !f.enveloped {
		return h.unaryBody(c, h.cfg.MaxMessage, nil)
	}
	gzipped, err := encoded(c.Get(headerEncoding))
	if err != nil {
		return nil, err
	}
	e := envelopes{r: httpconn.Body(c), gzip: gzipped, max: h.cfg.MaxMessage}
	return e.only()
}

// serve sends a record as the response. spec may lack only its environment.
func (h *Handler) serve(c *fiber.Ctx, r *call, id process.ID, spec *process.Spec, src stream.Source, open func(*encoder)) error {
	enc := &encoder{
		id:         id,
		byLine:     !spec.Stdin && spec.PTY == nil,
		neverFlush: option(c, "line_flush", "X-Line-Flush") == "never",
		keepalive:  keepalive(c, h.cfg.Keepalive),
		budget:     h.streams.Budget(r.principal.Tenant),
		wire: wire{
			binary: r.format.binary,
			gzip:   accepts(c.Get(headerAccepts)),
			snake:  c.Query("names") == "proto",
			// The oldest Python client fails on unknown fields.
			bare: c.Get(fiber.HeaderUserAgent) == "connect-python",
		},
	}
	head := stream.Head{
		ContentType: r.format.streamType(),
		Budget:      enc.budget,
		Headers:     [][2]string{{headerProcess, string(id)}, {"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}},
	}
	if enc.wire.gzip {
		head.Headers = append(head.Headers, [2]string{headerEncoding, "gzip"})
	}
	if open != nil {
		head.Timeout = r.timeout // the timeout of Start applies to the process, not the request
		open(enc)
	}
	return h.streams.Serve(c, head, src, enc)
}

// keepalive returns the interval of keepalives that the client requests, or else def.
func keepalive(c *fiber.Ctx, def time.Duration) time.Duration {
	return textenc.Keepalive(c.Get(textenc.KeepaliveHeader), def)
}
