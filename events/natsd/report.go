package natsd

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/events/fleet"
)

// lookInterval is how often the server's health is checked and published.
const lookInterval = 2 * time.Second

// reporter publishes what the server cannot store, over a connection within the process.
type reporter struct {
	server string
	nc     *nats.Conn
}

// conn returns a connection to the running server.
func (r *reporter) conn(s *Server) (*nats.Conn, error) {
	if r.nc != nil && !r.nc.IsClosed() {
		return r.nc, nil
	}
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.Token(s.cfg.Token), nats.Name("natsd"), nats.NoReconnect())
	if err == nil {
		r.nc = nc
	}
	return nc, err
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
		return // the next report tries again
	}
	report := fleet.StoreReport{Server: r.server}
	for _, p := range all {
		report.Problems = append(report.Problems, fleet.StoreProblem{Stream: p.stream, Error: p.text})
	}
	data, err := json.Marshal(report)
	if err == nil {
		nc.Publish(fleet.StoreSubject, data) //nolint:errcheck // the next report follows
	}
}
