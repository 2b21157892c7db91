package checkup

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/fleet"
)

// healthy returns the facts of a healthy cluster of three servers.
func healthy() *facts {
	f := &facts{unreachable: map[string]string{}}
	for _, name := range []string{"n1", "n2", "n3"} {
		f.servers = append(f.servers, server{fleet.StoreReport{
			Server: name, NATS: "2.15.2", Clustered: true, MetaLeader: name == "n2",
			Clients: map[string]int{"millrace-gateway 1": 1, "millrace-scheduler 1": 1, "millrace-reaper 1": 1, "millrace-hostd 1": 1, "another": 1},
		}, 10 * time.Millisecond})
	}
	f.streams = []stream{{name: "SBX", info: &jetstream.StreamInfo{
		Config: jetstream.StreamConfig{Replicas: 3, MaxBytes: 1000, Discard: jetstream.DiscardNew},
		Cluster: &jetstream.ClusterInfo{Name: "c", Leader: "n1", Replicas: []*jetstream.PeerInfo{
			{Name: "n2", Current: true}, {Name: "n3", Current: true},
		}},
	}}}
	f.hosts = []host{{fleet.Lease{Host: "h1", TTL: 10 * time.Second}, time.Second}, {fleet.Lease{Host: "old", TTL: 10 * time.Second, Gone: true}, time.Hour}}
	return f
}

func TestFindings(t *testing.T) {
	tests := []struct {
		name    string
		change  func(f *facts)
		subject string // of the only finding that is not OK; empty: none
		detail  string
	}{
		{"healthy", func(*facts) {}, "", ""},
		{"an unreachable URL", func(f *facts) { f.unreachable["nats://x"] = "refused" }, "NATS at nats://x", "refused"},
		{"a server that is offline", func(f *facts) {
			f.servers = f.servers[:2]
			f.streams[0].info.Cluster.Replicas[1].Offline = true
		}, "NATS server n3", "offline"},
		{"a server without a report", func(f *facts) { f.servers = f.servers[:2] }, "NATS server n3", "no report"},
		{"a damaged copy", func(f *facts) {
			f.servers[2].Problems = []fleet.StoreProblem{{Stream: "SBX", Error: "write error"}}
		}, "NATS server n3", "SBX write error"},
		{"a copy that is behind", func(f *facts) {
			f.streams[0].info.Cluster.Replicas[0] = &jetstream.PeerInfo{Name: "n2", Lag: 7}
		}, "NATS server n2", "SBX by 7"},
		{"no leader of the cluster", func(f *facts) { f.servers[1].MetaLeader = false }, "JetStream", "no leader"},
		{"two versions of servers", func(f *facts) { f.servers[0].NATS = "2.15.1" }, "NATS versions", "2.15.1, 2.15.2"},
		{"a wrong clock", func(f *facts) { f.servers[0].ahead = -2 * time.Second }, "clocks", "2.01s"},
		{"a stream without a leader", func(f *facts) { f.streams[0].info.Cluster.Leader = "" }, "stream SBX", "no leader"},
		{"a stream that does not answer", func(f *facts) { f.streams[0] = stream{name: "SBX", err: errors.New("timeout")} }, "stream SBX", "timeout"},
		{"a missing stream", func(f *facts) { f.streams[0] = stream{name: "SBX", err: jetstream.ErrStreamNotFound} }, "stream SBX", "does not exist"},
		{"a stream with one copy", func(f *facts) { f.streams[0].info.Config.Replicas = 1 }, "stream SBX", "1 of 3 copies"},
		{"a full stream", func(f *facts) { f.streams[0].info.State.Bytes = 900 }, "stream SBX", "900 of 1000 bytes"},
		{"no scheduler", func(f *facts) {
			for _, s := range f.servers {
				delete(s.Clients, "millrace-scheduler 1")
			}
		}, "scheduler", "no service"},
		{"two versions of services", func(f *facts) { f.servers[0].Clients["millrace-hostd 2"] = 1 }, "versions", "2: hostd"},
		{"a host with an ended lease", func(f *facts) {
			f.hosts = append(f.hosts, host{fleet.Lease{Host: "h2", TTL: 10 * time.Second}, 70 * time.Second})
		}, "host h2", "1m0s ago"},
		{"no host", func(f *facts) { f.hosts = f.hosts[1:] }, "hosts", "none is alive"},
		{"a cut restore", func(f *facts) { f.restoring = true }, "restore", "cut"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := healthy()
			tt.change(f)
			bad := slices.DeleteFunc(judge(f), func(x Finding) bool { return x.OK })
			if tt.subject == "" {
				if len(bad) > 0 {
					t.Errorf("findings: %+v", bad)
				}
				return
			}
			if len(bad) != 1 || bad[0].Subject != tt.subject || !strings.Contains(bad[0].Detail, tt.detail) || bad[0].Do == "" {
				t.Errorf("findings: %+v; want %s, %s", bad, tt.subject, tt.detail)
			}
		})
	}
}

// One `up` stands for all services, and its server for a cluster.
func TestUpIsHealthy(t *testing.T) {
	f := healthy()
	f.servers = []server{{fleet.StoreReport{Server: "millrace", NATS: "2.15.2", Clients: map[string]int{"millrace-up 1": 2}}, 0}}
	f.streams = []stream{{name: "SBX", info: &jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: 1}}}}
	for _, x := range judge(f) {
		if !x.OK {
			t.Errorf("finding: %+v", x)
		}
	}
}
