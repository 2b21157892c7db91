package processes

import (
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// headerLastEvent is the header that a browser sends when it reconnects.
const headerLastEvent = "Last-Event-ID"

// events streams a record.
func (h *Handler) events(c *fiber.Ctx) error {
	id, err := record.ProcessID(c, "id")
	if err != nil {
		return err
	}
	opt, err := options(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	opened, err := record.Open(ctx, h.core, auth.From(c), id, opt)
	if err != nil {
		return record.WriteError(c, err)
	}
	sse := textenc.WantsSSE(c.Get(fiber.HeaderAccept))
	if sse && opened.AtEnd() && c.Get(headerLastEvent) != "" {
		// No other response keeps a browser from reconnecting forever.
		opened.Source.Close()
		return c.SendStatus(fiber.StatusNoContent)
	}
	pulse := textenc.NewKeepaliveTimer(textenc.Keepalive(c.Get(textenc.KeepaliveHeader), DefaultKeepalive))
	head := stream.Head{ContentType: textenc.ContentTypeNDJSON, Headers: record.StreamHeaders(id, opened.After)}
	var enc stream.Encoder = &lines{id: id, after: opened.After, pulse: pulse}
	if sse {
		head.ContentType = textenc.ContentTypeSSE
		enc = &browser{id: id, after: opened.After, pulse: pulse}
	}
	return h.streams.Serve(c, head, opened.Source, enc)
}

// options returns the requested part of the record. A browser reconnects to the same URL:
// its Last-Event-ID takes precedence over after.
func options(c *fiber.Ctx) (record.Options, error) {
	opt := record.Options{Follow: record.Flag(c, "follow", true)}
	var err error
	if opt.Limit, err = record.Limit(c); err != nil {
		return opt, err
	}
	if last := c.Get(headerLastEvent); last != "" {
		opt.After, err = record.ParseSeq(last)
		return opt, err
	}
	opt.Position, err = record.ParsePosition(c.Query("after"))
	return opt, err
}
