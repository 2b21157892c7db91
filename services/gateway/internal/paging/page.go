package paging

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
)

// maxPage is the default and maximum number of items in a page.
const maxPage = 100

// ErrToken reports a nextToken that was not the token of a page.
var ErrToken = kind.New(kind.Invalid, "decode", "", "nextToken is invalid")

// Cursor identifies the last item of the previous page.
type Cursor struct {
	Time int64 // creation of the item, Unix nanoseconds
	ID   string
}

// String returns the cursor as an opaque token.
func (x Cursor) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(x.Time, 10) + "." + x.ID))
}

// ParseCursor parses the token of a cursor.
func ParseCursor(s string) (*Cursor, error) {
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		nanos, id, ok := strings.Cut(string(raw), ".")
		at, err := strconv.ParseInt(nanos, 10, 64)
		if ok && err == nil {
			return &Cursor{Time: at, ID: id}, nil
		}
	}
	return nil, ErrToken
}

// Parse returns the requested page: its size and the cursor before it.
func Parse(c *fiber.Ctx) (limit int, after *Cursor, err error) {
	if limit, err = Limit(c); err != nil {
		return 0, nil, err
	}
	if s := c.Query("nextToken"); s != "" {
		after, err = ParseCursor(s)
	}
	return limit, after, err
}

// Limit returns the size of the requested page: 1 to 100, the default.
func Limit(c *fiber.Ctx) (int, error) {
	s := c.Query("limit")
	if s == "" {
		return maxPage, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxPage {
		return 0, kind.Newf(kind.Invalid, "decode", "", "limit must be between 1 and %d", maxPage)
	}
	return n, nil
}

// Cut returns the page of all (newest first) after the cursor (nil: the first page), and sets
// the header with the next page's cursor, if any.
func Cut[T any](c *fiber.Ctx, all []T, limit int, after *Cursor, at func(*T) Cursor) []T {
	if after != nil {
		i := slices.IndexFunc(all, func(t T) bool { return Newest(at(&t), *after) > 0 })
		if i < 0 {
			i = len(all)
		}
		all = all[i:]
	}
	if len(all) > limit {
		all = all[:limit]
		Continue(c, at(&all[limit-1]))
	}
	return all
}

// Continue sets the header with the cursor of the next page: the last item of this one.
func Continue(c *fiber.Ctx, after Cursor) { c.Set("X-Next-Token", after.String()) }

// Newest orders by time, newest first.
func Newest(a, b Cursor) int {
	return cmp.Or(cmp.Compare(b.Time, a.Time), strings.Compare(a.ID, b.ID))
}
