package natsd

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func TestOnlyACopyThatTheOthersHaveIsRebuilt(t *testing.T) {
	peer := func(name string, current, offline bool, lag uint64) *server.PeerInfo {
		return &server.PeerInfo{Name: name, Current: current, Offline: offline, Lag: lag}
	}
	broken := peer("n0", false, false, 9)
	tests := []struct {
		name string
		in   *server.ClusterInfo
		ok   bool
	}{
		{"both others are complete", &server.ClusterInfo{RaftGroup: "g", Leader: "n1", Replicas: []*server.PeerInfo{broken, peer("n2", true, false, 0)}}, true},
		{"the third is behind", &server.ClusterInfo{RaftGroup: "g", Leader: "n1", Replicas: []*server.PeerInfo{broken, peer("n2", true, false, 1)}}, false},
		{"the third is away", &server.ClusterInfo{RaftGroup: "g", Leader: "n1", Replicas: []*server.PeerInfo{broken, peer("n2", true, true, 0)}}, false},
		{"the third is not current", &server.ClusterInfo{RaftGroup: "g", Leader: "n1", Replicas: []*server.PeerInfo{broken, peer("n2", false, false, 0)}}, false},
		{"this server leads", &server.ClusterInfo{RaftGroup: "g", Leader: "n0", Replicas: []*server.PeerInfo{peer("n1", true, false, 0), peer("n2", true, false, 0)}}, false},
		{"there is no leader", &server.ClusterInfo{RaftGroup: "g", Replicas: []*server.PeerInfo{broken, peer("n2", true, false, 0)}}, false},
		{"the leader is alone", &server.ClusterInfo{RaftGroup: "g", Leader: "n1", Replicas: []*server.PeerInfo{broken}}, false},
		{"a server alone", nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if group, err := othersComplete(tt.in, "n0"); (err == nil) != tt.ok || tt.ok && group != "g" {
				t.Errorf("othersComplete = %q, %v; want ok %v", group, err, tt.ok)
			}
		})
	}
}

func TestWhatLastsIsReported(t *testing.T) {
	now := time.Unix(1000, 0)
	broken, behind := problem{stream: "A", text: "write error: x", broken: true}, problem{stream: "B", text: "not current"}
	absent := problem{stream: "C", text: "stream not found", absent: true}
	var l lasting
	if got := l.see(now, []problem{broken, behind, absent}); len(got) != 1 || got[0].stream != "A" {
		t.Errorf("at first: %v, want A only", got)
	}
	if got := l.see(now.Add(laggard), []problem{broken, behind, absent}); len(got) != 3 || got[1].broken || !got[2].broken {
		t.Errorf("after %v: %v, want A, B, and C, which is broken", laggard, got)
	}
	if got := l.see(now.Add(laggard), nil); len(got) != 0 {
		t.Errorf("when all is well: %v", got)
	}
	if got := l.see(now.Add(2*laggard), []problem{behind}); len(got) != 0 {
		t.Errorf("when it begins again: %v", got)
	}
}
