package ledger_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/ledger"
	"github.com/millrace/millrace/events/usage"
)

var noon = time.Date(2026, 2, 28, 12, 0, 0, 0, time.UTC)

func open(t testing.TB, srv *eventstest.Server) *ledger.Store {
	t.Helper()
	s := eventstest.Open(t, srv).Ledger()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func book(t testing.TB, s *ledger.Store, tenant string) ledger.Book {
	t.Helper()
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s.Book(tenant)
}

// Entries count once on all gateways, in any order, also when they are added at the same time and
// after a restart. Only a refund grows.
func TestAddOnce(t *testing.T) {
	srv := eventstest.Start(t)
	first, second := open(t, srv), open(t, srv)
	entries := []ledger.Entry{
		{ID: "re_1", Kind: ledger.Refund, Cents: -200}, {ID: "cs_1", Kind: ledger.Payment, Cents: 1000}, {ID: "re_1", Kind: ledger.Refund, Cents: -100},
		{ID: ledger.AutoID(1), Kind: ledger.Auto, Cents: 500}, {ID: "cs_1", Kind: ledger.Payment, Cents: 1000}, {ID: "re_1", Kind: ledger.Refund, Cents: -200},
	}
	var mu sync.Mutex
	var added int
	var all sync.WaitGroup
	for i, s := range []*ledger.Store{first, second, first, second} {
		all.Go(func() {
			for j := range entries {
				e := entries[(i+j)%len(entries)]
				e.Tenant, e.At = "t", noon
				ok, err := s.Add(t.Context(), e)
				if err != nil {
					t.Error(err)
				}
				if ok {
					mu.Lock()
					added++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	if added != 3 && added != 4 { // the refund may have grown
		t.Errorf("%d entries were added", added)
	}
	srv.Restart()
	for _, s := range []*ledger.Store{first, second, open(t, srv)} {
		if b := book(t, s, "t"); b.Balance() != 1300 || len(b.Entries) != 3 || b.Entries[0].Rev == 0 {
			t.Errorf("%d, %+v", b.Balance(), b)
		}
		if b := book(t, s, "other"); b.Balance() != 0 || len(b.Entries) != 0 || s.Has("other", "cs_1") || !s.Has("t", "cs_1") {
			t.Errorf("%+v", b)
		}
	}
}

func TestAddRejects(t *testing.T) {
	s := eventstest.Open(t, eventstest.Start(t)).Ledger()
	for _, e := range []ledger.Entry{
		{ID: "a", Kind: ledger.Payment}, {ID: "a", Kind: ledger.Payment, Cents: -1}, {ID: "a", Kind: ledger.Payment, Cents: ledger.MaxCents + 1},
		{ID: "a", Kind: ledger.Refund, Cents: 1}, {ID: "a", Kind: ledger.Refund, Cents: -1 << 63}, {Kind: ledger.Auto, Cents: 1}, {ID: "a", Kind: "gift", Cents: 1},
	} {
		e.Tenant = "t"
		if ok, err := s.Add(t.Context(), e); ok || !kind.Is(err, kind.Invalid) {
			t.Errorf("%+v: %v, %v", e, ok, err)
		}
	}
}

// A day keeps its first price, is replaced while it is open, and has the same cents however often it is
// folded. A settled day ignores the facts, so that they can be removed.
func TestDays(t *testing.T) {
	srv := eventstest.Start(t)
	s := open(t, srv)
	today := usage.DayOf(noon)
	used := func(cpu time.Duration) []usage.Daily {
		return []usage.Daily{{Day: today, Counters: usage.Counters{CPU: cpu, Sandboxes: 1}}}
	}
	cheap, dear := usage.Price{CPUHour: 5000}, usage.Price{CPUHour: 50_000}
	put := func(b ledger.Book) ledger.Book {
		t.Helper()
		if err := s.PutDay(t.Context(), "t", &b.Days[0]); err != nil {
			t.Fatal(err)
		}
		return book(t, s, "t")
	}
	b := put(book(t, s, "t").Update(used(time.Hour), cheap, today))
	for range 2 {
		b = put(b.Update(used(2*time.Hour), dear, today+ledger.SettleAfter))
		if b.Balance() != -10 || b.Days[0].Price != cheap || b.Days[0].Settled {
			t.Errorf("%+v", b)
		}
	}
	old := b
	b = put(b.Update(used(2*time.Hour), dear, today+ledger.SettleAfter+1))
	if err := s.PutDay(t.Context(), "t", &old.Days[0]); !kind.Is(err, kind.Conflict) {
		t.Errorf("a second writer: %v", err)
	}
	f := usage.New("t", "i1", usage.Sandbox, noon)
	if !b.Days[0].Settled || !b.Settled(&f) {
		t.Errorf("not settled: %+v", b)
	}
	if f = f.Measure(noon.Add(13*time.Hour), time.Second); b.Settled(&f) {
		t.Error("a fact with a day that is not stored is settled")
	}
	for _, later := range [][]usage.Daily{used(5 * time.Hour), nil} {
		if got := b.Update(later, dear, today+100); got.Balance() != -10 || got.Days[0].Sandboxes != 1 {
			t.Errorf("%+v", got)
		}
	}
}

// An automatic payment is requested once at a time, by one of two gateways.
func TestTopup(t *testing.T) {
	srv := eventstest.Start(t)
	s, other := open(t, srv), open(t, srv)
	change := func(s *ledger.Store, b ledger.Body) (ledger.Topup, error) {
		return s.Change(t.Context(), "t", func(*ledger.Topup) (ledger.Body, error) { return b, nil })
	}
	steps := []struct {
		name string
		body ledger.Body
		want string
	}{
		{"an answer without a request", ledger.Received{Number: 0}, "invalid"},
		{"the settings", ledger.Configured{Enabled: true, Threshold: 100, Amount: 500}, "true 0 0"},
		{"the payer", ledger.Paid{Customer: "cus_1"}, "true 0 0"},
		{"a request", ledger.Requested{At: noon}, "true 1 500"},
		{"a second request", ledger.Requested{At: noon}, "invalid"},
		{"another number", ledger.Received{Number: 2}, "invalid"},
		{"other settings", ledger.Configured{Enabled: true, Threshold: 100, Amount: 700}, "true 1 500"},
		{"the answer", ledger.Received{Number: 1}, "true 1 0"},
		{"the answer again", ledger.Received{Number: 1}, "invalid"},
		{"the next request", ledger.Requested{At: noon}, "true 2 700"},
		{"a refusal", ledger.Declined{Number: 2}, "false 2 0"},
	}
	for i, tt := range steps {
		st, err := change([]*ledger.Store{s, other}[i%2], tt.body)
		got := fmt.Sprint(st.Enabled, st.Number, st.Pending)
		if err != nil {
			got = kind.Of(err).String()
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	book(t, s, "t")
	if got := s.Topups(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// BenchmarkAdd measures entries of many tenants, as payments arrive.
func BenchmarkAdd(b *testing.B) {
	s := eventstest.Open(b, eventstest.Start(b)).Ledger()
	n := 0
	var mu sync.Mutex
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			mu.Lock()
			n++
			id := n
			mu.Unlock()
			if _, err := s.Add(b.Context(), ledger.Entry{Tenant: fmt.Sprint("t", id%1000), ID: fmt.Sprint("cs_", id), Kind: ledger.Payment, Cents: 500, At: noon}); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}

// BenchmarkYear measures the start of a view of a year of 1,000 tenants.
func BenchmarkYear(b *testing.B) {
	const tenants, days = 1000, 365
	srv := eventstest.Start(b)
	s := eventstest.Open(b, srv).Ledger()
	var all sync.WaitGroup
	for i := range tenants {
		all.Go(func() {
			for day := range days {
				d := ledger.Day{Daily: usage.Daily{Day: usage.Day(20_000 + day), Counters: usage.Counters{CPU: time.Hour, Sandboxes: 3}}, Price: usage.Price{CPUHour: 5000}, Cents: 5, Settled: true}
				if err := s.PutDay(b.Context(), fmt.Sprint("t", i), &d); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ResetTimer()
	for b.Loop() {
		if bk := book(b, open(b, srv), "t7"); bk.Balance() != -5*days {
			b.Fatal(bk.Balance())
		}
	}
}
