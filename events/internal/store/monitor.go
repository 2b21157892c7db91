package store

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
)

const (
	monitorInterval = 5 * time.Second
	// blockedAfter is how long a stream may have no leader, or reject appends: an election
	// takes up to ten seconds.
	blockedAfter = 12 * time.Second
	// reportAge is how long a server's report is valid. Servers publish one every two
	// seconds.
	reportAge = 10 * time.Second
)

// StreamHealth reports whether a stream can be written.
type StreamHealth = streams.Health

// Monitor detects streams that cannot be written.
type Monitor struct {
	*session
	names []string // of all streams

	mu      sync.Mutex
	stores  []string            // streams of object stores, at the last check
	failing map[string]*failing // appends of this connection, by stream
	reports map[string]report   // by server
	health  []StreamHealth      // of the last check, by name
	logged  streams.Alarms
	silent  map[string]time.Time // since when a stream's leader has not answered
}

// failing is a run of consecutive failed appends.
type failing struct {
	since, last time.Time
	why         string
}

// report is the last report of a NATS server.
type report struct {
	at       time.Time
	problems []fleet.StoreProblem
}

// appended records the outcome of an append to a subject.
func (m *Monitor) appended(subject string, err error, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && len(m.failing) == 0 {
		return
	}
	stream := streams.Of(subject)
	if err == nil {
		delete(m.failing, stream)
		return
	}
	if m.failing == nil {
		m.failing = make(map[string]*failing)
	}
	f := m.failing[stream]
	if f == nil {
		f = &failing{since: now}
		m.failing[stream] = f
	}
	f.last, f.why = now, err.Error()
}

// Streams returns the health of every stream at the last check by Run, by name.
func (m *Monitor) Streams() []StreamHealth {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.health)
}

// blocked returns an error that names the streams in which nothing can be stored, or nil. No append
// needs an object store.
func (m *Monitor) blocked() error {
	var all []string
	for _, s := range m.Streams() {
		if s.Blocked != "" && !strings.HasPrefix(s.Stream, streams.ObjectStore) {
			all = append(all, "stream "+s.Stream+" cannot be written: "+s.Blocked)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return kind.New(kind.Unavailable, "write streams", "", strings.Join(all, "; "))
}

// Run checks until ctx ends whether each stream can be written: its leader
// answers, appends succeed, and no server reports its copy damaged. It logs problems as
// errors and exposes them in Streams and [Conn.Healthy].
func (m *Monitor) Run(ctx context.Context) error {
	sub, err := m.nc.Subscribe(fleet.StoreSubject, m.reported)
	if err != nil {
		return kind.Wrap(kind.Unavailable, "monitor streams", "", err)
	}
	defer sub.Unsubscribe()
	t := time.NewTicker(monitorInterval)
	defer t.Stop()
	for {
		if m.Connected() {
			m.checkStreams(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// reported handles a server's report.
func (m *Monitor) reported(msg *nats.Msg) {
	var r fleet.StoreReport
	if err := json.Unmarshal(msg.Data, &r); err != nil || r.Server == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reports == nil {
		m.reports = make(map[string]report)
	}
	m.reports[r.Server] = report{time.Now(), r.Problems}
}

// leader is a stream leader's answer.
type leader struct {
	name     string // of the server; empty: the server is alone
	answered bool
	usage    streams.Usage
}

// checkStreams queries every leader and updates the health of all streams.
func (m *Monitor) checkStreams(ctx context.Context) {
	names := slices.Concat(m.names, m.findStores(ctx))
	leaders := make([]leader, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { leaders[i] = m.leaderOf(ctx, name) })
	}
	wg.Wait()
	if ctx.Err() == nil && m.Connected() {
		m.judge(m.log, names, leaders, time.Now())
	}
}

// findStores returns the object stores, which are created when they are first used. Without an answer
// they are those of the check before.
func (m *Monitor) findStores(ctx context.Context) []string {
	msg, err := m.request(ctx, &nats.Msg{Subject: "$JS.API.STREAM.NAMES", Data: []byte(`{"subject":"$O.>"}`)})
	var names []string
	if err == nil {
		names, err = streams.ParseObjectStores(msg.Data)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.stores = names
	}
	return m.stores
}

func (m *Monitor) leaderOf(ctx context.Context, stream string) leader {
	msg, err := m.request(ctx, &nats.Msg{Subject: "$JS.API.STREAM.INFO." + stream})
	if err != nil {
		return leader{}
	}
	name, usage, err := streams.ParseInfo(msg.Data)
	return leader{name: name, answered: err == nil, usage: usage}
}

// judge computes the health of each stream and logs changes.
func (m *Monitor) judge(log *slog.Logger, names []string, leaders []leader, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.silent == nil {
		m.silent, m.logged = make(map[string]time.Time), make(streams.Alarms)
	}
	before := m.health
	m.health = nil
	for i, name := range append([]string{""}, names...) {
		h := StreamHealth{Stream: name}
		led := leader{answered: true}
		if i > 0 {
			led = leaders[i-1]
		}
		m.judgeCopies(&h, led, now)
		m.judgeLeader(&h, led, now)
		m.judgeAppends(&h, now)
		h.Led, h.Usage = led.answered, led.usage
		if j := slices.IndexFunc(before, func(b StreamHealth) bool { return b.Stream == name }); j >= 0 {
			h.Follow(&before[j], now)
		} else if h.Blocked != "" {
			h.Since = now
		}
		if name != "" || len(h.Damaged) > 0 {
			m.health = append(m.health, h)
		}
		m.logged.Report(log, &h, now)
	}
}

// judgeCopies applies the servers' reports. A problem of the leader blocks the stream.
func (m *Monitor) judgeCopies(h *StreamHealth, led leader, now time.Time) {
	for server, r := range m.reports {
		if now.Sub(r.at) > reportAge {
			continue
		}
		for _, p := range r.problems {
			switch {
			case p.Stream != h.Stream:
			case h.Stream != "" && led.answered && cmp.Or(led.name, server) == server:
				h.Blocked = server + ": " + p.Error
			default:
				h.Damaged = append(h.Damaged, server+": "+p.Error)
			}
		}
	}
	slices.Sort(h.Damaged)
}

// judgeLeader blocks a stream whose leader has not answered for too long.
func (m *Monitor) judgeLeader(h *StreamHealth, led leader, now time.Time) {
	if led.answered {
		delete(m.silent, h.Stream)
		return
	}
	since, ok := m.silent[h.Stream]
	if !ok {
		m.silent[h.Stream] = now
	}
	if ok && now.Sub(since) >= blockedAfter {
		h.Blocked = "no leader answers: too few NATS servers have the stream"
		if len(h.Damaged) > 0 {
			h.Blocked += " (" + strings.Join(h.Damaged, "; ") + ")"
		}
	}
}

// judgeAppends blocks a stream to which no append of this connection succeeds.
func (m *Monitor) judgeAppends(h *StreamHealth, now time.Time) {
	f := m.failing[h.Stream]
	if f == nil {
		return
	}
	if now.Sub(f.last) > blockedAfter {
		delete(m.failing, h.Stream) // no appends are attempted any more
		return
	}
	if h.Blocked == "" && f.last.Sub(f.since) >= blockedAfter {
		h.Blocked = "appends fail: " + f.why
	}
}
