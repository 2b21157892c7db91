package e2b

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// A sandbox's logs are a view of its processes' records: every line of output,
// in the order of the records. Nothing else is kept for them.

const (
	maxLogs    = 1000
	maxLogRead = 32 << 20 // bytes of output that one request reads
	maxLogLine = 64 << 10
	logIdle    = time.Second
)

// logLine is the older shape of an entry: a line is a JSON object of its own,
// which E2B's command line program takes apart.
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

// logger is the source that E2B's program shows and filters by.
const logger = "process"

func (e *logEntry) line() (logLine, error) {
	fields := map[string]string{"level": e.Level, "logger": logger, "message": e.Message}
	maps.Copy(fields, e.Fields)
	b, err := json.Marshal(fields)
	return logLine{e.Timestamp, string(b)}, err
}

// logQuery says which lines are wanted.
type logQuery struct {
	from, to time.Time // zero: no bound
	limit    int
	backward bool
	search   string
	level    string // at least; "error": stderr only
}

func (h *Handler) logsV1(c *fiber.Ctx) error {
	q := logQuery{limit: maxLogs}
	var err error
	if q.from, err = millis(c.Query("start")); err == nil {
		q.limit, err = number(c, "limit", maxLogs, 0, maxLogs)
	}
	if err != nil {
		return err
	}
	entries, err := h.logs(c, &q)
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

func (h *Handler) logsV2(c *fiber.Ctx) error {
	q := logQuery{limit: maxLogs, search: strings.Clone(c.Query("search")), level: strings.Clone(c.Query("level"))}
	at, err := millis(c.Query("cursor"))
	if err == nil {
		q.limit, err = number(c, "limit", maxLogs, 0, maxLogs)
	}
	if err != nil {
		return err
	}
	switch c.Query("direction") {
	case "", "forward":
		q.from = at
	case "backward":
		q.to, q.backward = at, true
	default:
		return invalid("direction must be forward or backward")
	}
	entries, err := h.logs(c, &q)
	if err != nil {
		return err
	}
	return c.JSON(map[string]any{"logs": entries})
}

func millis(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > maxSeconds*1000 {
		return time.Time{}, invalid("a time must be milliseconds since 1970")
	}
	return time.UnixMilli(n), nil
}

// logs reads the records of the sandbox's processes as they are now. The
// sandbox may be over: its logs stay as long as its records do.
func (h *Handler) logs(c *fiber.Ctx, q *logQuery) ([]logEntry, error) {
	id, err := route.Parse(c.Params("id"))
	if err != nil {
		return nil, err
	}
	p := auth.From(c)
	all, err := h.core.Processes(c.UserContext(), p, id, func(*process.Summary) bool { return true })
	if err != nil {
		return nil, err
	}
	out, left := []logEntry{}, maxLogRead
	for i := range all {
		s := &scan{q: q, id: all[i].ID}
		if err := s.read(c.UserContext(), h.core, p, &left); err != nil {
			return nil, err
		}
		out = q.wanted(append(out, s.out...))
	}
	if q.backward {
		slices.Reverse(out)
	}
	return out, nil
}

// wanted gives those of entries that are on the page, by time. It is asked after each
// record: all of them together can have very many lines.
func (q *logQuery) wanted(entries []logEntry) []logEntry {
	slices.SortStableFunc(entries, func(a, b logEntry) int { return a.Timestamp.Compare(b.Timestamp) })
	n := min(len(entries), q.limit)
	if q.backward {
		return entries[len(entries)-n:]
	}
	return entries[:n]
}

// scan makes lines of one record's output.
type scan struct {
	q    *logQuery
	id   process.ID
	half map[process.Stream][]byte
	last time.Time // of the last event
	out  []logEntry
}

// read goes through what is stored of the record, for at most left bytes.
func (s *scan) read(ctx context.Context, c *core.Core, p core.Principal, left *int) error {
	tip, err := c.Tip(ctx, p, s.id)
	if kind.Is(err, kind.NotFound) {
		return nil // its record is gone already
	}
	if err != nil {
		return err
	}
	s.half = make(map[process.Stream][]byte)
	from, err := s.readFrom(ctx, c, p, 0, tip.Last, left)
	if kind.Is(err, kind.Gone) && from > 1 {
		_, err = s.readFrom(ctx, c, p, from-1, tip.Last, left)
	}
	for stream, half := range s.half {
		if len(half) > 0 {
			s.line(s.last, stream, half)
		}
	}
	return err
}

// readFrom reads the events after a place up to last. If they are Gone it gives
// the first one left.
func (s *scan) readFrom(ctx context.Context, c *core.Core, p core.Principal, after, last process.Seq, left *int) (process.Seq, error) {
	r, err := c.Read(ctx, p, s.id, after)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for r.After() < last && *left > 0 && !s.full() {
		batch, err := r.Next(ctx, logIdle)
		if errors.Is(err, io.EOF) || err == nil && len(batch) == 0 {
			break
		}
		if err != nil {
			first, _ := events.FirstSeq(err)
			return first, err
		}
		for _, e := range batch {
			s.last = e.Time
			if w, ok := e.Body.(process.Wrote); ok {
				*left -= len(w.Data)
				s.wrote(&w)
			}
		}
	}
	return 0, nil
}

// full reports whether no later line of the record can be wanted.
func (s *scan) full() bool { return !s.q.backward && len(s.out) >= s.q.limit }

// wrote takes output apart into lines. What is longer than maxLogLine is cut: a
// log is for people.
func (s *scan) wrote(w *process.Wrote) {
	half, data := s.half[w.Stream], w.Data
	for len(data) > 0 {
		n := bytes.IndexByte(data, '\n')
		whole := n >= 0
		if !whole {
			n = len(data)
		}
		if room := maxLogLine - len(half); n > room {
			n, whole = room, false
		}
		half, data = append(half, data[:n]...), data[n:]
		if whole {
			data = data[1:]
		}
		if whole || len(half) == maxLogLine {
			s.line(s.last, w.Stream, half)
			half = half[:0]
		}
	}
	s.half[w.Stream] = half
}

func (s *scan) line(at time.Time, stream process.Stream, line []byte) {
	level := "info"
	if stream == process.Stderr {
		level = "error"
	}
	text := strings.ToValidUTF8(string(bytes.TrimSuffix(line, []byte{'\r'})), "\ufffd")
	switch {
	case len(line) == 0 && s.q.search != "",
		at.Before(s.q.from), !s.q.to.IsZero() && at.After(s.q.to),
		s.q.level == "error" && level != "error",
		!strings.Contains(text, s.q.search):
		return
	}
	if s.q.backward && len(s.out) >= 2*max(s.q.limit, 1) {
		s.out = append(s.out[:0], s.out[len(s.out)-s.q.limit:]...) // only the last ones can be wanted
	} else if s.full() {
		return
	}
	s.out = append(s.out, logEntry{
		Timestamp: at.UTC(), Level: level, Message: text,
		Fields: map[string]string{"process": string(s.id), "stream": stream.String()},
	})
}
