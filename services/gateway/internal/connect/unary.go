package connect

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/gofiber/fiber/v2"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
)

// message is a pointer to a generated type.
type message[T any] interface {
	*T
	proto.Message
}

// unary serves one unary method.
func unary[T any, M message[T]](h *Handler, do func(context.Context, *call, M) (proto.Message, error)) fiber.Handler {
	return unaryUpTo(h.cfg.MaxMessage, h, do)
}

// unaryUpTo is unary for messages of at most limit bytes.
func unaryUpTo[T any, M message[T]](limit int, h *Handler, do func(context.Context, *call, M) (proto.Message, error)) fiber.Handler {
	return func(c *fiber.Ctx) error {
		f, ok := formatOf(c.Get(fiber.HeaderContentType))
		if !ok || f.enveloped {
			return wrongType(c, typeJSON+", "+typeProto)
		}
		res, sent, err := handle(limit, h, c, f, do)
		if err != nil {
			return answer(c, err)
		}
		raw, err := f.append(nil, res)
		if err != nil {
			return answer(c, err)
		}
		c.Set(fiber.HeaderContentType, f.unaryType())
		if len(raw) >= compressFrom && accepts(c.Get(fiber.HeaderAcceptEncoding)) {
			c.Set(fiber.HeaderContentEncoding, "gzip")
			raw = appendGzip(nil, raw)
		}
		if sent != nil {
			if err := h.streams.Answer(c, raw, h.streams.Budget(auth.From(c).Tenant), sent); err != nil {
				sent(false)
				c.Response().Header.Del("X-Replay-From")
				return answer(c, err)
			}
			return nil
		}
		return c.Send(raw)
	}
}

// handle reads the message and calls the method. A non-nil sent must be called with
// whether the client received the response.
func handle[T any, M message[T]](limit int, h *Handler, c *fiber.Ctx, f format, do func(context.Context, *call, M) (proto.Message, error)) (res proto.Message, sent func(bool), err error) {
	bulk := bulk{slots: h.bulks}
	defer bulk.release()
	raw, err := h.unaryBody(c, limit, &bulk)
	if err != nil {
		return nil, nil, err
	}
	r, err := newCall(c, f)
	if err != nil {
		return nil, nil, err
	}
	msg := M(new(T))
	if err := f.decode(raw, msg); err != nil {
		return nil, nil, err
	}
	if !f.binary {
		r.raw = raw
	}
	ctx, cancel := r.context(c)
	defer cancel()
	res, err = do(ctx, &r, msg)
	if r.next > 0 {
		c.Set("X-Replay-From", strconv.FormatUint(r.next, 10))
	}
	return res, r.onSent, err
}

// unaryBody reads a unary request's message of at most limit bytes. One larger than
// MaxMessage first acquires large.
func (h *Handler) unaryBody(c *fiber.Ctx, limit int, large *bulk) ([]byte, error) {
	gzipped, err := encoded(c.Get(fiber.HeaderContentEncoding))
	if err != nil {
		return nil, err
	}
	raw, err := body(c, h.cfg.MaxMessage, limit, large)
	if err != nil {
		if !httpconn.DiscardBody(c) {
			c.Context().SetConnectionClose()
		}
		return nil, err
	}
	if gzipped && len(raw) > 0 {
		return h.unzipped(c, raw, limit, large)
	}
	return raw, nil
}

// unzipped decompresses a message that may turn out to be a large one.
func (h *Handler) unzipped(c *fiber.Ctx, raw []byte, limit int, large *bulk) ([]byte, error) {
	out, err := gunzip(raw, h.cfg.MaxMessage)
	var w *wireError
	if limit == h.cfg.MaxMessage || !errors.As(err, &w) || w.code != CodeExhausted {
		return out, err
	}
	if err := large.acquire(c.UserContext()); err != nil {
		return nil, err
	}
	return gunzip(raw, limit)
}

// wrongType rejects a content type that the method does not accept.
func wrongType(c *fiber.Ctx, accepted string) error {
	if !httpconn.DiscardBody(c) {
		c.Context().SetConnectionClose()
	}
	c.Set("Accept-Post", accepted)
	c.Status(http.StatusUnsupportedMediaType).Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return c.SendString(`{"code":"invalid_argument","message":"unsupported content type: want ` + accepted + `"}`)
}
