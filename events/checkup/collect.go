package checkup

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/restoring"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
)

const (
	// listen bounds the wait for reports of servers. It exceeds twice the interval of reports.
	listen  = 5 * time.Second
	attempt = 3 * time.Second
)

// facts are what the servers and services report.
type facts struct {
	unreachable map[string]string // URLs that refuse connections, with the reason
	servers     []server
	streams     []stream
	hosts       []host
	restoring   bool
}

// server is the last report of a NATS server.
type server struct {
	fleet.StoreReport
	ahead time.Duration // of its clock before that of this machine
}

type stream struct {
	name string
	info *jetstream.StreamInfo
	err  error
}

type host struct {
	fleet.Lease
	age time.Duration // of the lease, by the clock of the servers
}

// Examine examines an installation.
func Examine(ctx context.Context, url, token string) ([]Finding, error) {
	f := &facts{unreachable: make(map[string]string)}
	opts := []nats.Option{nats.Name("millrace-doctor"), nats.Timeout(attempt)}
	if token != "" {
		opts = append(opts, nats.Token(token))
	}
	urls := strings.Split(url, ",")
	for _, u := range urls {
		nc, err := nats.Connect(u, opts...)
		if err != nil {
			f.unreachable[u] = err.Error()
			continue
		}
		nc.Close()
	}
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return nil, &kind.Error{Op: "reach nats", Kind: kind.Unavailable, Msg: fmt.Sprintf("no NATS server can be reached at %s: %v", url, err), Err: err}
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	var servers []server
	var heard error
	known := make(chan map[string]*copies, 1)
	wg.Go(func() { servers, heard = hear(ctx, nc, len(urls), known) })
	f.collect(ctx, js)
	if len(f.unreachable) == 0 {
		of, _ := f.copies()
		known <- of
	}
	wg.Wait()
	if heard != nil {
		return nil, heard
	}
	f.servers = servers
	return judge(f), nil
}

// hear returns the last report of each server. It returns early once as many servers have reported as
// are expected, and all that streams have copies on.
func hear(ctx context.Context, nc *nats.Conn, expected int, known <-chan map[string]*copies) ([]server, error) {
	reports := make(chan *nats.Msg, 64)
	sub, err := nc.ChanSubscribe(fleet.StoreSubject, reports)
	if err != nil {
		return nil, kind.Wrap(kind.Unavailable, "reach nats", "", err)
	}
	defer sub.Unsubscribe()
	end := time.NewTimer(listen)
	defer end.Stop()
	var all []server
	var of map[string]*copies // nil: not known yet
	for {
		if of != nil && len(all) >= expected && reported(all, of) {
			return all, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-end.C:
			return all, nil
		case of = <-known:
		case msg := <-reports:
			var r fleet.StoreReport
			if err := json.Unmarshal(msg.Data, &r); err == nil && r.Server != "" {
				all = latest(all, server{r, time.Until(r.Time)})
			}
		}
	}
}

// reported reports whether each server that streams have copies on is among all.
func reported(all []server, of map[string]*copies) bool {
	for name := range of {
		if !slices.ContainsFunc(all, func(s server) bool { return s.Server == name }) {
			return false
		}
	}
	return true
}

func latest(all []server, s server) []server {
	for i := range all {
		if all[i].Server == s.Server {
			all[i] = s
			return all
		}
	}
	return append(all, s)
}

// collect asks for all streams and leases.
func (f *facts) collect(ctx context.Context, js jetstream.JetStream) {
	shards := 1
	if first := ask(ctx, js, streams.Out(0)); first.err == nil {
		if n, err := strconv.Atoi(first.info.Config.Metadata["millrace.shards"]); err == nil {
			shards = n
		}
	}
	names := streams.Names(shards)
	f.streams = make([]stream, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { f.streams[i] = ask(ctx, js, name) })
	}
	wg.Go(func() { f.restoring = ask(ctx, js, restoring.Stream).err == nil })
	wg.Go(func() { f.hosts = leases(ctx, js) })
	wg.Wait()
}

func ask(ctx context.Context, js jetstream.JetStream, name string) stream {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	s, err := js.Stream(ctx, name)
	if err != nil {
		return stream{name: name, err: err}
	}
	return stream{name: name, info: s.CachedInfo()}
}

// leases returns the leases of all hosts. A stream that does not answer is a finding of its own.
func leases(ctx context.Context, js jetstream.JetStream) []host {
	ctx, cancel := context.WithTimeout(ctx, 2*attempt)
	defer cancel()
	s, err := js.Stream(ctx, streams.Hosts)
	if err != nil {
		return nil
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(streams.SourceOf(streams.Hosts)))
	if err != nil {
		return nil
	}
	var all []host
	for subject := range info.State.Subjects {
		m, err := s.GetLastMsgForSubject(ctx, subject)
		if err != nil {
			continue
		}
		if lease, err := codec.DecodeLease(m.Data); err == nil {
			all = append(all, host{lease, info.TimeStamp.Sub(m.Time)})
		}
	}
	return all
}
