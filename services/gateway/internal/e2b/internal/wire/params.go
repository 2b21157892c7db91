package wire

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
)

// PathName returns the decoded id in the path.
func PathName(c *fiber.Ctx) (string, error) {
	s, err := url.PathUnescape(c.Params("id"))
	if err != nil {
		return "", Invalid("the id is not valid percent-encoding")
	}
	return strings.Clone(s), nil
}

// Number parses a whole number between least and most in the query; def if it is absent.
func Number(c *fiber.Ctx, name string, def, least, most int) (int, error) {
	s := c.Query(name)
	if s == "" {
		return def, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		return 0, Invalid("%s must be between %d and %d", name, least, most)
	}
	return n, nil
}

// maxSeconds is the last second of the year 9999: JSON cannot represent later times.
const maxSeconds = 253_402_300_799

// UnixSeconds parses a time in the query, in seconds since 1970; the zero time if it is absent.
func UnixSeconds(c *fiber.Ctx, name string) (time.Time, error) {
	s := c.Query(name)
	if s == "" {
		return time.Time{}, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > maxSeconds {
		return time.Time{}, Invalid("%s must be Unix seconds", name)
	}
	return time.Unix(n, 0), nil
}

// Millis parses a time in milliseconds since 1970; the zero time if s is empty.
func Millis(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > maxSeconds*1000 {
		return time.Time{}, Invalid("a time must be milliseconds since 1970")
	}
	return time.UnixMilli(n), nil
}
