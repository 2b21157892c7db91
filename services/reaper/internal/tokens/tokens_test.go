package tokens

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/frame"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/usage"
)

const talkID = "ses_0123456789abcdefghijklmn"

type world struct {
	t    *testing.T
	ctx  context.Context
	log  *events.Log
	view *catalog.View
}

func newWorld(t *testing.T) *world {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	log := eventstest.Open(t, eventstest.Start(t))
	return &world{t, ctx, log, eventstest.View(t, log)}
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) counter() *Counter {
	return New(Config{Log: w.log, View: w.view, Slog: slog.New(slog.DiscardHandler), Interval: time.Second})
}

func (w *world) pass(counters ...*Counter) {
	w.t.Helper()
	w.ok(w.view.Sync(w.ctx))
	var all sync.WaitGroup
	for _, c := range counters {
		all.Go(func() {
			if err := c.pass(w.ctx); err != nil {
				w.t.Error(err)
			}
		})
	}
	all.Wait()
}

func (w *world) want(in, out, tools int64) {
	w.t.Helper()
	f, ok, err := w.log.Meter().Read(w.ctx, "t", talkID)
	w.ok(err)
	var sum usage.Counters
	for _, d := range f.Days {
		sum = sum.Add(d.Counters)
	}
	if want := (usage.Counters{Sessions: 1, InputTokens: in, OutputTokens: out, ToolCalls: tools}); !ok || sum != want {
		w.t.Errorf("got %+v, want %+v", sum, want)
	}
}

// runtime is a runtime whose record a test writes.
type runtime struct {
	w      *world
	id     sandbox.ID
	rev    uint64
	out    *record.Writer
	seq    process.Seq
	offset uint64
}

func (w *world) runtime(generation uint32) *runtime {
	w.t.Helper()
	r := &runtime{w: w, id: sandbox.NewID()}
	request := sandbox.Requested{Template: "base", E2A: sandbox.E2A{Persistence: sandbox.Persistence{Conversation: talkID, Generation: generation}}}
	var err error
	r.rev, err = w.log.AppendSandbox(w.ctx, "t", r.id, 0, 1, request, sandbox.Placed{Host: "h", Epoch: 1}, sandbox.Running{})
	w.ok(err)
	pid, tag := process.NewID(r.id), bootstrap.Tag
	_, err = w.log.PutSummary(w.ctx, &process.Summary{ID: pid, Tenant: "t", Host: "h", Epoch: 1, Started: time.Now(), PID: 7, Spec: process.Spec{Cmd: "x", Tag: &tag, Helper: true}}, 0)
	w.ok(err)
	r.out = w.log.Writer(record.Ref{Host: "h", ID: pid}, 1)
	r.add(process.Accepted{}, process.Started{PID: 7})
	return r
}

func (r *runtime) add(bodies ...process.Body) {
	r.w.t.Helper()
	var all []process.Event
	for _, b := range bodies {
		r.seq++
		all = append(all, process.Event{Seq: r.seq, Time: time.Now(), Body: b})
	}
	r.w.ok(r.out.Append(r.w.ctx, all))
}

func (r *runtime) print(data []byte) {
	r.w.t.Helper()
	r.add(process.Wrote{Stream: process.Stdout, Offset: r.offset, Data: data})
	r.offset += uint64(len(data))
}

func (r *runtime) end() {
	r.w.t.Helper()
	code := int32(0)
	exit := process.Exit{Code: &code, Cause: process.CauseExited}
	r.add(process.Exited{Exit: exit}, process.Finished{Exit: exit})
}

func used(in, out int) []byte {
	return frame.Append(nil, frame.Text, fmt.Appendf(nil, `{"type":"runtime_event","event":"llm_usage","agent":"a","model":"m","input_tokens":%d,"output_tokens":%d}`, in, out))
}

var called = frame.Append(nil, frame.Text, []byte(`{"type":"tool_call","agent":"a","id":"1","name":"shell","arguments":{}}`))

// E-212: what agents report is counted once, by two reapers at the same time and after restarts, also if a
// message is in two events or a conversation is resumed. What clients send, and binary frames, do not count.
func TestCountOnce(t *testing.T) {
	w := newWorld(t)
	first := w.runtime(1)
	a, b := w.counter(), w.counter()
	w.pass(a, b)
	w.want(0, 0, 0)
	said := `{"type":"runtime_event","input_tokens":1000,"output_tokens":1000}`
	first.print(used(10, 5))
	first.print(frame.AppendMessage(nil, frame.Message{Received: &said}))
	first.print(frame.Append(nil, frame.Binary, []byte(said)))
	first.print(frame.Append(nil, frame.Text, []byte(`{"type":"agent_text","text":"runtime_event tool_call"}`)))
	first.print(frame.Append(nil, frame.Text, []byte(`{"type":"runtime_event","input_tokens":-5,"output_tokens":1}`)))
	first.print(frame.Append(nil, frame.Text, []byte(`{"type":"runtime_event","input_tokens":9000000000000000000,"output_tokens":1}`)))
	for range 2 {
		w.pass(a, b, w.counter())
		w.want(10, 5, 0)
	}
	both := append(used(1, 2), append(called, used(3, 4)...)...)
	first.print(both[:len(both)-3])
	w.pass(a)
	w.want(11, 7, 1)
	first.print(both[len(both)-3:])
	w.pass(a, b)
	w.pass(w.counter(), b)
	w.want(14, 11, 1)

	second := w.runtime(2) // before the record of the first one has its end
	second.print(used(100, 100))
	w.pass(a, b)
	first.print(called)
	first.end()
	for range 2 {
		w.pass(a, b)
		w.pass(w.counter())
		w.want(114, 111, 2)
	}
	if len(a.done) != 1 || !a.done[first.id] {
		t.Errorf("read to the end: %v", a.done)
	}
	second.print(used(1, 0))
	w.pass(b, w.counter())
	w.pass(a)
	w.want(115, 111, 2)
}

// A resume reopens the fact of a conversation that has ended, which then counts on.
func TestResumeReopens(t *testing.T) {
	w := newWorld(t)
	r := w.runtime(1)
	r.print(used(10, 5))
	r.end()
	w.pass(w.counter())
	_, err := w.log.Meter().Change(w.ctx, "t", talkID, func(f usage.Fact, ok bool) (usage.Fact, bool) { return f.End(time.Now(), false), ok })
	w.ok(err)
	w.runtime(2).print(used(1, 1))
	w.pass(w.counter())
	w.want(11, 6, 0)
	if f, _, err := w.log.Meter().Read(w.ctx, "t", talkID); err != nil || f.Over() {
		t.Errorf("%+v, %v", f, err)
	}
}
