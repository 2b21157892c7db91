package webhooks

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/webhook"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
)

// Deliveries are the attempts to deliver events to webhooks.
type Deliveries interface {
	Deliveries(ctx context.Context, p core.Principal, id webhook.ID, after uint64, oldest bool, yield func(webhook.Attempt, uint64) bool) error
	Delivery(ctx context.Context, p core.Principal, id webhook.ID, delivery string) (webhook.Attempt, error)
	Redeliver(ctx context.Context, p core.Principal, id webhook.ID, delivery string) (webhook.Attempt, error)
	Since(ctx context.Context, p core.Principal, since time.Time) (webhook.Positions, error)
	Replay(ctx context.Context, p core.Principal, id webhook.ID, from webhook.Positions) error
}

// DeliveryHandler serves the deliveries to webhooks.
type DeliveryHandler struct{ deliveries Deliveries }

// NewDeliveries returns a handler.
func NewDeliveries(d Deliveries) *DeliveryHandler { return &DeliveryHandler{d} }

const (
	maxDeliveries     = 100
	defaultDeliveries = 25
	// maxRead is the maximum number of deliveries that one page reads, matching or not.
	maxRead = 1000

	statusSuccess = "success"
	statusFailed  = "failed"
)

// deliveryBody is one delivery attempt to a receiver.
type deliveryBody struct {
	ID         string       `json:"id"`
	EventID    string       `json:"eventId"`
	EventType  webhook.Type `json:"eventType"`
	SandboxID  string       `json:"sandboxId"`
	ProcessID  string       `json:"processId,omitempty"`
	Events     int          `json:"events,omitempty"` // number of events of a batch; the others describe the first
	Attempt    uint32       `json:"attempt"`
	Status     string       `json:"status"`     // success or failed
	Final      bool         `json:"final"`      // no other attempt follows
	StatusCode *uint32      `json:"statusCode"` // of the response; null: no response
	Error      *string      `json:"error"`
	Response   string       `json:"responseBody"` // its first kilobyte
	URL        string       `json:"url"`
	Timestamp  time.Time    `json:"timestamp"`
	DurationMs int64        `json:"durationMs"`
}

func deliveryOf(a *webhook.Attempt) deliveryBody {
	b := deliveryBody{
		ID: a.ID, EventID: a.EventID, EventType: a.Type, SandboxID: string(a.Ref.Sandbox), ProcessID: string(a.Ref.Process), Events: a.Events, Attempt: a.Number,
		Status: statusSuccess, Final: a.Last || !a.Failed(), Response: a.Response, URL: a.URL,
		Timestamp: a.Time.UTC(), DurationMs: a.Took.Milliseconds(),
	}
	if a.Failed() {
		b.Status, b.Error = statusFailed, &a.Error
	}
	if a.Status != 0 {
		b.StatusCode = &a.Status
	}
	return b
}

// deliveryQuery selects deliveries.
type deliveryQuery struct {
	limit      int
	after      uint64
	oldest     bool
	status     string
	types      []webhook.Type
	start, end time.Time
}

func parseDeliveries(c *fiber.Ctx) (q deliveryQuery, err error) {
	if q.limit, err = wire.Number(c, "limit", defaultDeliveries, 1, maxDeliveries); err != nil {
		return q, err
	}
	if q.oldest, err = oldest(c); err != nil {
		return q, err
	}
	if q.types, err = typesOf(c, "eventType"); err != nil {
		return q, err
	}
	if s := c.Query("cursor"); s != "" {
		if q.after, err = strconv.ParseUint(s, 36, 64); err != nil || q.after == 0 {
			return q, wire.Invalid("cursor was not made by this API")
		}
	}
	switch q.status = c.Query("deliveryStatus"); q.status {
	case "", statusSuccess, statusFailed:
	default:
		return q, wire.Invalid("deliveryStatus must be %s or %s", statusSuccess, statusFailed)
	}
	for name, t := range map[string]*time.Time{"start": &q.start, "end": &q.end} {
		if s := c.Query(name); s != "" {
			if *t, err = time.Parse(time.RFC3339, s); err != nil {
				return q, wire.Invalid("%s must be an RFC 3339 time", name)
			}
		}
	}
	return q, nil
}

func (q *deliveryQuery) match(a *webhook.Attempt) bool {
	return (q.status == "" || (q.status == statusFailed) == a.Failed()) &&
		(len(q.types) == 0 || slices.Contains(q.types, a.Type)) &&
		!a.Time.Before(q.start) && (q.end.IsZero() || a.Time.Before(q.end))
}

// List lists delivery attempts. A page stops after maxRead attempts, so that it may be
// short, or empty, without being the last; its cursor is where it stopped.
func (h *DeliveryHandler) List(c *fiber.Ctx) error {
	id, err := webhook.ParseID(c.Params("id"))
	if err != nil {
		return err
	}
	q, err := parseDeliveries(c)
	if err != nil {
		return err
	}
	out := []deliveryBody{}
	read, last, more := 0, uint64(0), false
	err = h.deliveries.Deliveries(c.UserContext(), auth.From(c), id, q.after, q.oldest, func(a webhook.Attempt, rev uint64) bool {
		if len(out) == q.limit || read == maxRead {
			more = true
			return false
		}
		read, last = read+1, rev
		if q.match(&a) {
			out = append(out, deliveryOf(&a))
		}
		return true
	})
	if err != nil {
		return err
	}
	if more {
		c.Set("X-Next-Cursor", strconv.FormatUint(last, 36))
	}
	return c.JSON(out)
}

// Get serves GET /events/webhooks/:id/deliveries/:delivery.
func (h *DeliveryHandler) Get(c *fiber.Ctx) error {
	id, err := webhook.ParseID(c.Params("id"))
	if err != nil {
		return err
	}
	a, err := h.deliveries.Delivery(c.UserContext(), auth.From(c), id, c.Params("delivery"))
	if err != nil {
		return err
	}
	return c.JSON(deliveryOf(&a))
}

// Redeliver sends the event of one delivery again.
func (h *DeliveryHandler) Redeliver(c *fiber.Ctx) error {
	id, err := webhook.ParseID(c.Params("id"))
	if err != nil {
		return err
	}
	a, err := h.deliveries.Redeliver(c.UserContext(), auth.From(c), id, c.Params("delivery"))
	if err != nil {
		return err
	}
	return c.Status(fiber.StatusAccepted).JSON(fiber.Map{"eventId": a.EventID})
}

// Replay sends all events since a time, or after a cursor, again, in order.
func (h *DeliveryHandler) Replay(c *fiber.Ctx) error {
	id, err := webhook.ParseID(c.Params("id"))
	if err != nil {
		return err
	}
	var body struct {
		Since  time.Time `json:"since"`
		Cursor string    `json:"cursor"`
	}
	if err := wire.Decode(c, &body, true); err != nil {
		return err
	}
	var from webhook.Positions
	switch {
	case body.Since.IsZero() == (body.Cursor == ""):
		return wire.Invalid("either since, an RFC 3339 time, or cursor is required")
	case body.Cursor != "":
		from, err = webhook.ParsePositions(body.Cursor)
	default:
		from, err = h.deliveries.Since(c.UserContext(), auth.From(c), body.Since)
	}
	if err != nil {
		return err
	}
	if err := h.deliveries.Replay(c.UserContext(), auth.From(c), id, from); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusAccepted)
}
