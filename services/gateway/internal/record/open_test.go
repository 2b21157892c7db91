package record_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	records "github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/record/recordtest"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

func me() core.Principal { return core.Principal{Tenant: recordtest.Tenant} }

// book returns a record of ten events, of which retention has removed the first three; it is
// open unless finished.
func book(finished bool) (*recordtest.Gateway, process.ID) {
	b, id := recordtest.New("i1"), process.NewID("i1")
	b.Append(id, process.Accepted{}, process.Started{PID: 1})
	for range 7 {
		b.Append(id, process.Wrote{Stream: process.Stdout, Data: []byte("x")})
	}
	if finished {
		b.Append(id, process.Finished{})
	} else {
		b.Append(id, process.Exited{})
	}
	b.Forget(id, 4)
	return b, id
}

func TestOpenChecksThePosition(t *testing.T) {
	tests := []struct {
		name     string
		position record.Position
		finished bool
		after    process.Seq
		kind     kind.Kind // 0: no error
	}{
		{"a removed beginning", record.Position{}, false, 0, kind.Gone},
		{"just before the first retained event", record.Position{After: 2}, false, 0, kind.Gone},
		{"the first retained event", record.Position{After: 3}, false, 3, 0},
		{"last of an open record", record.Position{After: 10}, false, 10, 0},
		{"last of an ended record", record.Position{After: 10}, true, 10, 0},
		{"past the end of an ended record", record.Position{After: 11}, true, 0, kind.Invalid},
		{"past the end of an open record", record.Position{After: 11}, false, 0, kind.Invalid},
		{"far past the end", record.Position{After: math.MaxUint64}, true, 0, kind.Invalid},
		{"now", record.Position{Now: true}, false, 10, 0},
		{"now of an ended record", record.Position{Now: true}, true, 10, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, id := book(tt.finished)
			o, err := record.Open(t.Context(), b, me(), id, record.Options{Position: tt.position, Follow: true})
			if tt.kind != 0 {
				var r *record.RangeError
				if !kind.Is(err, tt.kind) || !errors.As(err, &r) || tt.kind == kind.Invalid && r.Last != 10 {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || o.After != tt.after || o.AtEnd() != (tt.finished && tt.after == 10) {
				t.Errorf("got %+v, %v", o, err)
			}
		})
	}
}

func TestOpenOfAMissingRecord(t *testing.T) {
	b, id := book(true)
	if _, err := record.Open(t.Context(), b, me(), process.NewID("i1"), record.Options{}); !kind.Is(err, kind.NotFound) {
		t.Errorf("unknown: %v", err)
	}
	if _, err := record.Open(t.Context(), b, core.Principal{Tenant: "t2"}, id, record.Options{}); !kind.Is(err, kind.NotFound) {
		t.Errorf("another tenant's: %v", err)
	}
	b.Forget(id, 11)
	if _, err := record.Open(t.Context(), b, me(), id, record.Options{}); !kind.Is(err, kind.Gone) {
		t.Errorf("nothing left: %v", err)
	}
}

// silent is a Book without retained events.
type silent struct{ *recordtest.Gateway }

func (silent) Tail(context.Context, core.Principal, process.ID) (records.Tail, error) {
	return records.Tail{}, kind.New(kind.NotFound, "read", "", "")
}

// The process has been idle for longer than the retention and is still running.
func TestOpenAcceptsAnyPositionOfARunningProcessWithoutEvents(t *testing.T) {
	b, id := book(false)
	o, err := record.Open(t.Context(), silent{b}, me(), id, record.Options{Position: record.Position{After: 10}, Follow: true})
	if err != nil || o.After != 10 || o.AtEnd() {
		t.Errorf("got %+v, %v", o, err)
	}
}

// drain reads until the end and returns the seqs.
func drain(ctx context.Context, src stream.Source) (seqs []process.Seq, err error) {
	for {
		batch, err := src.Next(ctx, time.Second)
		for _, e := range batch {
			seqs = append(seqs, e.Seq)
		}
		if err != nil {
			return seqs, err
		}
		if len(batch) == 0 {
			return seqs, context.DeadlineExceeded
		}
	}
}

func TestOptionsLimitWhatIsRead(t *testing.T) {
	tests := []struct {
		name        string
		opt         record.Options
		first, last process.Seq // 0: nothing
	}{
		{"everything stored", record.Options{Position: record.Position{After: 3}}, 4, 10},
		{"nothing is stored after now", record.Options{Position: record.Position{Now: true}}, 0, 0},
		{"a limit", record.Options{Position: record.Position{After: 3}, Limit: 3}, 4, 6},
		{"a limit beyond the stored events", record.Options{Position: record.Position{After: 3}, Limit: 99}, 4, 10},
		{"a limit with Follow", record.Options{Position: record.Position{After: 3}, Limit: 1, Follow: true}, 4, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, id := book(false)
			o, err := record.Open(t.Context(), b, me(), id, tt.opt)
			if err != nil {
				t.Fatal(err)
			}
			b.Append(id, process.Wrote{Stream: process.Stdout, Data: []byte("later")}) // was not stored when the record was opened
			seqs, err := drain(t.Context(), o.Source)
			want := int(tt.last) - int(tt.first) + 1
			if tt.last == 0 {
				want = 0
			}
			if !errors.Is(err, io.EOF) || len(seqs) != want || want > 0 && (seqs[0] != tt.first || o.Source.After() != tt.last) {
				t.Errorf("got %v, %v", seqs, err)
			}
		})
	}
}

func FuzzParsePositionAcceptsOnlySeqs(f *testing.F) {
	for _, s := range []string{"", "now", "0", "5", "18446744073709551615", "18446744073709551616", "-1", "+1", "abc", "1 ", "1\r\n", "0x1", "1_0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := record.ParsePosition(s)
		if err != nil {
			if !kind.Is(err, kind.Invalid) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		for _, c := range s {
			if (c < '0' || c > '9') && s != "now" {
				t.Fatalf("%q is %+v", s, p)
			}
		}
	})
}

func TestDecodeReportsTheError(t *testing.T) {
	var v struct {
		N int `json:"n"`
	}
	for _, body := range []string{``, `[`, `{"n":"x"}`, `{"n":1}{}`, `"s"`, `{"n":1e400}`} {
		if err := record.Decode([]byte(body), &v); !kind.Is(err, kind.Invalid) || kind.Message(err) == "" {
			t.Errorf("%q: %v", body, err)
		}
	}
	if err := record.Decode([]byte(`{"n":1,"unknown":{}}`), &v); err != nil || v.N != 1 {
		t.Errorf("good: %v", err)
	}
}

func TestWriteErrorNamesAReadablePosition(t *testing.T) {
	tests := []struct {
		name   string
		err    error
		status int
		want   string
	}{
		{"gone", &record.RangeError{ID: "p", Kind: kind.Gone, First: 5}, http.StatusGone,
			`{"code":410,"message":"retention has passed; the first event left is 5","error_code":"gone","first":5}`},
		{"nothing left", &record.RangeError{ID: "p", Kind: kind.Gone}, http.StatusGone,
			`{"code":410,"message":"retention has passed","error_code":"gone"}`},
		{"past the end", &record.RangeError{ID: "p", Kind: kind.Invalid, Last: 7}, http.StatusBadRequest,
			`{"code":400,"message":"out of range; the last event is 7","error_code":"out_of_range","last":7}`},
		{"other errors are returned to the app", kind.New(kind.NotFound, "", "", "no"), http.StatusNotFound, `{"code":404,"message":"no","error_code":"not_found"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := recordtest.Serve(t, stream.New(stream.Config{}), func(r fiber.Router) {
				r.Get("/", func(c *fiber.Ctx) error { return record.WriteError(c, tt.err) })
			})
			if resp, body := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: "/"}); resp.StatusCode != tt.status || body != tt.want {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
		})
	}
}

// lagging is a record whose end is first read from a server that lags.
type lagging struct {
	record.Records
	lags int // number of such reads
}

func (l *lagging) Tail(ctx context.Context, p core.Principal, id process.ID) (records.Tail, error) {
	tip, err := l.Records.Tail(ctx, p, id)
	if l.lags--; l.lags >= 0 {
		tip.Last -= 3
	}
	return tip, err
}

// A position that a reader has seen is not refused because one server lags.
func TestOpenReadsAnOpenRecordAgain(t *testing.T) {
	b, id := book(false)
	o, err := record.Open(t.Context(), &lagging{b, 2}, me(), id, record.Options{Position: record.Position{After: 10}, Follow: true})
	if err != nil || o.After != 10 || o.Tail.Last != 10 {
		t.Fatalf("got %+v, %v", o, err)
	}
	o.Source.Close()
}
