package sandboxes

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
	"github.com/millrace/millrace/services/gateway/internal/paging"
)

// query selects and orders the sandboxes of a list.
type query struct {
	metadata map[string]string
	states   []string
	template string
	after    time.Time // inclusive
	asc      bool
	limit    int
	cursor   *paging.Cursor
}

// ListV1 serves the first generation's list: running sandboxes, unpaged.
func (h *Handler) ListV1(c *fiber.Ctx) error {
	q := query{states: []string{stateRunning}}
	var err error
	if q.metadata, err = parseMetadata(c.Query("metadata")); err != nil {
		return err
	}
	found, err := h.find(c, &q)
	if err != nil {
		return err
	}
	return c.JSON(h.bodies.list(found))
}

// ListV2 serves the second generation's list: running and paused sandboxes, in pages.
func (h *Handler) ListV2(c *fiber.Ctx) error {
	q, err := parseQuery(c)
	if err != nil {
		return err
	}
	found, err := h.find(c, &q)
	if err != nil {
		return err
	}
	if slices.Contains(q.states, stateRunning) {
		running := 0
		for i := range found {
			if stateOf(&found[i]) == stateRunning {
				running++
			}
		}
		c.Set("X-Total-Running", strconv.Itoa(running))
	}
	page := q.page(found)
	if n := len(page); n > 0 && page[n-1].ID != found[len(found)-1].ID {
		paging.Continue(c, cursorOf(&page[n-1]))
	}
	return c.JSON(h.bodies.list(page))
}

// find returns all sandboxes that match q, in its order, on all pages.
func (h *Handler) find(c *fiber.Ctx, q *query) ([]sandbox.State, error) {
	if err := h.view.Sync(c.UserContext()); err != nil {
		return nil, err
	}
	p := auth.From(c)
	q.template, _ = p.OwnedName(q.template)
	found := h.lifecycle.Sandboxes(p, q.match)
	slices.SortFunc(found, func(a, b sandbox.State) int { return q.compare(cursorOf(&a), cursorOf(&b)) })
	return found, nil
}

func (q *query) match(s *sandbox.State) bool {
	if s.Request.Build != "" || !s.IsRunning() && !s.InPause() || !slices.Contains(q.states, stateOf(s)) || s.Started.Before(q.after) || q.template != "" && q.template != wire.TemplateID(s) && q.template != s.Request.Alias {
		return false
	}
	for k, v := range q.metadata {
		if got, ok := s.Request.Metadata[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// page returns the page after the cursor.
func (q *query) page(found []sandbox.State) []sandbox.State {
	if q.cursor != nil {
		i := slices.IndexFunc(found, func(s sandbox.State) bool { return q.compare(cursorOf(&s), *q.cursor) > 0 })
		if i < 0 {
			return nil
		}
		found = found[i:]
	}
	return found[:min(len(found), q.limit)]
}

// compare orders by start, then by id, so that pages never overlap.
func (q *query) compare(a, b paging.Cursor) int {
	d := cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.ID, b.ID))
	if !q.asc {
		d = -d
	}
	return d
}

func cursorOf(s *sandbox.State) paging.Cursor {
	return paging.Cursor{Time: s.Started.UnixNano(), ID: string(s.ID)}
}

func parseQuery(c *fiber.Ctx) (query, error) {
	q := query{template: strings.Clone(c.Query("template"))}
	var err error
	if q.metadata, err = parseMetadata(c.Query("metadata")); err != nil {
		return q, err
	}
	if q.states, err = parseStates(c); err != nil {
		return q, err
	}
	switch order := c.Query("order"); order {
	case "", "desc":
	case "asc":
		q.asc = true
	default:
		return q, wire.Invalid("order must be asc or desc")
	}
	if s := c.Query("startedAfter"); s != "" {
		if q.after, err = time.Parse(time.RFC3339, s); err != nil {
			return q, wire.Invalid("startedAfter must be an RFC 3339 time")
		}
	}
	if q.limit, err = paging.Limit(c); err != nil {
		return q, err
	}
	if s := c.Query("nextToken"); s != "" {
		q.cursor, err = paging.ParseCursor(s)
	}
	return q, err
}

// parseStates parses the requested states, separated by commas or one per parameter. None
// means all.
func parseStates(c *fiber.Ctx) ([]string, error) {
	given := c.Context().QueryArgs().PeekMulti("state")
	if len(given) == 0 {
		return []string{stateRunning, statePaused}, nil
	}
	var states []string
	for _, list := range given {
		for s := range strings.SplitSeq(string(list), ",") {
			if s != stateRunning && s != statePaused {
				return nil, wire.Invalid("state must be running or paused")
			}
			states = append(states, s)
		}
	}
	return states, nil
}

// parseMetadata decodes an SDK's filter: each key and value is percent-encoded, then all are
// form-encoded, then that is encoded as a query value, which the router has already
// decoded.
func parseMetadata(s string) (map[string]string, error) {
	if s == "" {
		return nil, nil
	}
	form, err := url.ParseQuery(s)
	if err != nil {
		return nil, wire.Invalid("metadata: %s", err)
	}
	out := make(map[string]string, len(form))
	for k, vs := range form {
		key, err := url.PathUnescape(k)
		if err != nil {
			return nil, wire.Invalid("metadata: %s", err)
		}
		if out[key], err = url.PathUnescape(vs[0]); err != nil {
			return nil, wire.Invalid("metadata: %s", err)
		}
	}
	return out, nil
}
