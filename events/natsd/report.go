package natsd

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/events/fleet"
)

const (
	// checkInterval is how often the server's health is checked and published.
	checkInterval = 2 * time.Second
	// reportAge is how long another server's report is valid.
	reportAge = 5 * checkInterval
)

// reporter publishes the server's storage problems, and receives those of the others, over
// an in-process connection.
type reporter struct {
	server string
	nc     *nats.Conn

	mu     sync.Mutex
	others map[string]receivedReport // last report of each server
}

// receivedReport is a server's report and the time of its receipt.
type receivedReport struct {
	at time.Time
	fleet.StoreReport
}

// conn returns a connection to the running server.
func (r *reporter) conn(s *Server) (*nats.Conn, error) {
	if r.nc != nil && !r.nc.IsClosed() {
		return r.nc, nil
	}
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.Token(s.cfg.Token), nats.Name("natsd"), nats.NoReconnect())
	if err != nil {
		return nil, err
	}
	if _, err := nc.Subscribe(fleet.StoreSubject, r.receive); err != nil {
		nc.Close()
		return nil, err
	}
	r.nc = nc
	return nc, nil
}

// receive stores a server's report.
func (r *reporter) receive(msg *nats.Msg) {
	var report fleet.StoreReport
	if err := json.Unmarshal(msg.Data, &report); err != nil || report.Server == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.others == nil {
		r.others = make(map[string]receivedReport)
	}
	r.others[report.Server] = receivedReport{time.Now(), report}
}

// sound returns an error unless another server has reported lately, without a problem with
// a stream. A copy with damaged files may look complete to the stream's leader.
func (r *reporter) sound(server, stream string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.others[server]
	if !ok || time.Since(last.at) > reportAge {
		return fmt.Errorf("server %s has not reported the health of its copy within %v", server, reportAge)
	}
	for _, p := range last.Problems {
		if p.Stream == stream || p.Stream == "" {
			return fmt.Errorf("the copy on %s is not healthy: %s", server, p.Error)
		}
	}
	return nil
}

func (r *reporter) close() {
	if r.nc != nil {
		r.nc.Close()
		r.nc = nil
	}
}

func (r *reporter) publish(s *Server, all []problem) {
	nc, err := r.conn(s)
	if err != nil {
		return // the next report retries
	}
	ns := s.ns.Load()
	report := fleet.StoreReport{
		Server: r.server, NATS: server.VERSION, Time: time.Now(), Clients: clients(ns),
		Clustered: s.cfg.Cluster != "", MetaLeader: s.cfg.Cluster != "" && ns.JetStreamIsLeader(),
	}
	for _, p := range all {
		report.Problems = append(report.Problems, fleet.StoreProblem{Stream: p.stream, Error: p.text})
	}
	data, err := json.Marshal(report)
	if err == nil {
		nc.Publish(fleet.StoreSubject, data) //nolint:errcheck // the next report follows
	}
}

// maxClients bounds the connections that a report counts.
const maxClients = 4096

// clients returns the number of connections by their name.
func clients(ns *server.Server) map[string]int {
	all, err := ns.Connz(&server.ConnzOptions{Limit: maxClients})
	if err != nil {
		return nil
	}
	out := make(map[string]int)
	for _, c := range all.Conns {
		if c.Name != "" {
			out[c.Name]++
		}
	}
	return out
}
