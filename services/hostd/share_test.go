package hostd

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// computes is a place that uses CPU time.
type computes struct {
	driver.Instance
	used   time.Duration
	err    error // of Yield
	yields []bool
}

func (c *computes) Burned() (time.Duration, error) { return c.used, nil }

func (c *computes) Yield(yes bool) error {
	c.yields = append(c.yields, yes)
	return c.err
}

// Who uses most of a CPU lets others go first, until he uses little, whether he wants
// no more or gets no more.
func TestWhoComputesLetsOthersGoFirst(t *testing.T) {
	place := &computes{used: time.Hour}
	b, now := &box{inst: place}, time.Unix(1000, 0)
	b.share(now)
	if len(place.yields) > 0 {
		t.Errorf("told %v before anything was known", place.yields)
	}
	for _, tt := range []struct {
		percent int // of a CPU
		told    []bool
	}{
		{10, []bool{false}}, // an earlier life may have told something else
		{60, nil},
		{100, []bool{true}},
		{200, []bool{true}}, // somebody may have ended it
		{25, []bool{true}},
		{15, []bool{false}},
		{100, nil}, // he may have got no more: he is an equal for a while
		{69, nil},
		{70, []bool{true}},
		{0, []bool{false}},
	} {
		place.yields = nil
		now, place.used = now.Add(sharePause), place.used+time.Duration(tt.percent)*(sharePause/100)
		if b.share(now); !slices.Equal(place.yields, tt.told) {
			t.Errorf("at %d %%: told %v, want %v", tt.percent, place.yields, tt.told)
		}
	}
}

func TestWhoCannotYieldIsNotAskedAgain(t *testing.T) {
	place := &computes{err: kind.New(kind.Unimplemented, "yield", "", "no")}
	b, now := &box{inst: place}, time.Unix(1000, 0)
	for range 5 {
		b.share(now)
		now, place.used = now.Add(time.Second), place.used+time.Second
	}
	if len(place.yields) != 1 {
		t.Errorf("asked %d times", len(place.yields))
	}
}
