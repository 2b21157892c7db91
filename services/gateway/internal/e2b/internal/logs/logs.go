package logs

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
	records "github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// Records are the records of processes.
type Records interface {
	Processes(ctx context.Context, p core.Principal, sbx sandbox.ID, keep func(*process.Summary) bool) ([]process.Summary, error)
	Tail(ctx context.Context, p core.Principal, id process.ID) (records.Tail, error)
	SeqsAround(ctx context.Context, p core.Principal, id process.ID, at time.Time) (before, after process.Seq, err error)
	Read(ctx context.Context, p core.Principal, id process.ID, after process.Seq) (*records.Reader, error)
}

// Handler serves the logs of sandboxes.
type Handler struct{ records Records }

// New returns a handler.
func New(r Records) *Handler { return &Handler{r} }

// source provides the records of a principal.
type source struct {
	records Records
	p       core.Principal
}

const (
	maxLogs    = 1000
	maxLogLine = 64 << 10
)

// logLine is the older form of an entry: a line is itself a JSON object, which E2B's CLI
// decodes.
type logLine struct {
	Timestamp time.Time `json:"timestamp"`
	Line      string    `json:"line"`
}

type logEntry struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`
}

// logger is the source that E2B's CLI shows and filters by.
const logger = "process"

func (e *logEntry) line() (logLine, error) {
	fields := map[string]string{"level": e.Level, "logger": logger, "message": e.Message}
	maps.Copy(fields, e.Fields)
	b, err := json.Marshal(fields)
	return logLine{e.Timestamp, string(b)}, err
}

// logQuery selects lines. A page begins at a time and continues forward or backward from
// there. Depth is the distance in that direction: milliseconds since 1970, negated for a
// backward page. Cursors have that resolution.
type logQuery struct {
	backward bool
	start    int64 // minimum depth; math.MinInt64: from the first line, or the last one
	limit    int
	search   string
	level    string // minimum level; "error": stderr only
}

func (q *logQuery) depth(t time.Time) int64 {
	if q.backward {
		return -t.UnixMilli()
	}
	return t.UnixMilli()
}

// at returns the start of a depth's millisecond.
func (q *logQuery) at(depth int64) time.Time {
	if q.backward {
		return time.UnixMilli(-depth)
	}
	return time.UnixMilli(depth)
}

// begin sets the start of the page to the millisecond in a parameter, if present.
func (q *logQuery) begin(s string) error {
	at, err := wire.Millis(s)
	if q.start = q.depth(at); s == "" {
		q.start = math.MinInt64
	}
	return err
}

// ListV1 serves GET /sandboxes/:id/logs.
func (h *Handler) ListV1(c *fiber.Ctx) error {
	q := logQuery{}
	err := q.begin(c.Query("start"))
	if err == nil {
		q.limit, err = wire.Number(c, "limit", maxLogs, 0, maxLogs)
	}
	if err != nil {
		return err
	}
	entries, err := h.read(c, q)
	if err != nil {
		return err
	}
	lines := make([]logLine, len(entries))
	for i := range entries {
		if lines[i], err = entries[i].line(); err != nil {
			return err
		}
	}
	return c.JSON(map[string]any{"logs": lines, "logEntries": entries})
}

// ListV2 serves GET /v2/sandboxes/:id/logs.
func (h *Handler) ListV2(c *fiber.Ctx) error {
	q := logQuery{search: strings.Clone(c.Query("search")), level: strings.Clone(c.Query("level"))}
	switch c.Query("direction") {
	case "", "forward":
	case "backward":
		q.backward = true
	default:
		return wire.Invalid("direction must be forward or backward")
	}
	err := q.begin(c.Query("cursor"))
	if err == nil {
		q.limit, err = wire.Number(c, "limit", maxLogs, 0, maxLogs)
	}
	if err != nil {
		return err
	}
	entries, err := h.read(c, q)
	if err != nil {
		return err
	}
	return c.JSON(map[string]any{"logs": entries})
}

// read reads the current records of the sandbox's processes. The sandbox may have ended:
// its logs exist as long as its records.
func (h *Handler) read(c *fiber.Ctx, q logQuery) ([]logEntry, error) {
	id, err := route.Parse(c.Params("id"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := record.Context(c) // a disconnect is not detected
	defer cancel()
	p := auth.From(c)
	all, err := h.records.Processes(ctx, p, id, func(s *process.Summary) bool { return !s.Started.IsZero() })
	if err != nil || q.limit == 0 {
		return []logEntry{}, err
	}
	pg := newPage(q)
	if err := pg.fill(ctx, &source{h.records, p}, all); err != nil {
		return nil, err
	}
	return pg.answer(), nil
}
