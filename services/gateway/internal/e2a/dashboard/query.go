package dashboard

import (
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/usage"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
)

// given returns the value of a query parameter. ok is false if it is absent.
func given(c *fiber.Ctx, name string) (value string, ok bool, err error) {
	all := c.Context().QueryArgs().PeekMulti(name)
	if len(all) > 1 {
		return "", false, body.Invalid(name + " is given twice")
	}
	if len(all) == 0 {
		return "", false, nil
	}
	return string(all[0]), true, nil
}

// dayOf reads a day from the query, if it is given.
func dayOf(c *fiber.Ctx, name string, into *usage.Day) error {
	s, ok, err := given(c, name)
	if err != nil || !ok {
		return err
	}
	d, err := usage.ParseDay(s)
	if err != nil {
		return body.Invalid(name + " must be a day in the form YYYY-MM-DD")
	}
	*into = d
	return nil
}

// Page is the part of a list that a request asks for.
type Page struct{ limit, offset int }

const (
	defaultLimit = 20
	maxLimit     = 100
)

// PageOf reads the limit and the offset from the query.
func PageOf(c *fiber.Ctx) (Page, error) {
	p := Page{limit: defaultLimit}
	if err := number(c, "limit", 1, maxLimit, &p.limit); err != nil {
		return p, err
	}
	return p, number(c, "offset", 0, 1<<31-1, &p.offset)
}

func number(c *fiber.Ctx, name string, least, most int, into *int) error {
	s, ok, err := given(c, name)
	if err != nil || !ok {
		return err
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || int(n) < least || int(n) > most {
		return body.Invalid(name + " must be a whole number from " + strconv.Itoa(least) + " to " + strconv.Itoa(most))
	}
	*into = int(n)
	return nil
}

// Cut returns the page of a list.
func Cut[T any](all []T, p Page) []T {
	from := min(p.offset, len(all))
	return all[from:min(from+p.limit, len(all))]
}
