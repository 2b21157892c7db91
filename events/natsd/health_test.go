package natsd

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

func TestACopyIsRebuiltOnlyIfTheOthersAreComplete(t *testing.T) {
	peer := func(name string, current, offline bool, lag uint64) *server.PeerInfo {
		return &server.PeerInfo{Name: name, Current: current, Offline: offline, Lag: lag}
	}
	broken := peer("n0", false, false, 9)
	var reports reporter
	for name, problems := range map[string]string{"n1": "", "n2": "", "n3": `{"stream":"S","error":"write error"}`, "n4": `{"error":"x"}`, "n5": `{"stream":"T","error":"x"}`} {
		reports.receive(&nats.Msg{Data: []byte(`{"server":"` + name + `","problems":[` + problems + `]}`)})
	}
	sound := func(name string) error { return reports.sound(name, "S") }
	tests := []struct {
		name string
		in   *server.ClusterInfo
		ok   bool
	}{
		{"the third is damaged too", &server.ClusterInfo{RaftGroup: "g", Leader: "n1", Replicas: []*server.PeerInfo{broken, peer("n3", true, false, 0)}}, false},
		{"the leader is damaged too", &server.ClusterInfo{RaftGroup: "g", Leader: "n3", Replicas: []*server.PeerInfo{broken, peer("n2", true, false, 0)}}, false},
		{"the third has a problem with all streams", &server.ClusterInfo{RaftGroup: "g", Leader: "n1", Replicas: []*server.PeerInfo{broken, peer("n4", true, false, 0)}}, false},
		{"the third does not report", &server.ClusterInfo{RaftGroup: "g", Leader: "n1", Replicas: []*server.PeerInfo{broken, peer("n6", true, false, 0)}}, false},
		{"another stream of the third is damaged", &server.ClusterInfo{RaftGroup: "g", Leader: "n1", Replicas: []*server.PeerInfo{broken, peer("n5", true, false, 0)}}, true},
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
			if group, err := othersComplete(tt.in, "n0", sound); (err == nil) != tt.ok || tt.ok && group != "g" {
				t.Errorf("othersComplete = %q, %v; want ok %v", group, err, tt.ok)
			}
		})
	}
}

func TestLastingProblemsAreReported(t *testing.T) {
	now := time.Unix(1000, 0)
	broken, behind := problem{stream: "A", text: "write error: x", broken: true}, problem{stream: "B", text: "not current"}
	absent := problem{stream: "C", text: "stream not found", absent: true}
	var l lasting
	if got := l.see(now, []problem{broken, behind, absent}); len(got) != 1 || got[0].stream != "A" {
		t.Errorf("at first: %v, want A only", got)
	}
	if got := l.see(now.Add(lagTolerance), []problem{broken, behind, absent}); len(got) != 3 || got[1].broken || !got[2].broken {
		t.Errorf("after %v: %v, want A, B, and C, which is broken", lagTolerance, got)
	}
	if got := l.see(now.Add(lagTolerance), nil); len(got) != 0 {
		t.Errorf("when all is well: %v", got)
	}
	if got := l.see(now.Add(2*lagTolerance), []problem{behind}); len(got) != 0 {
		t.Errorf("when it begins again: %v", got)
	}
}

// A raft log without the stream's files could make a server without messages the leader. If
// the log cannot be moved, the files stay.
func TestTheRaftLogIsMovedFirst(t *testing.T) {
	dir := t.TempDir()
	stream := filepath.Join(dir, "jetstream", "$G", "streams", "S")
	system := filepath.Join(dir, "jetstream", "$SYS")
	if err := os.MkdirAll(stream, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(system, nil, 0o600); err != nil { // not a directory: the rename fails
		t.Fatal(err)
	}
	m := &repairer{Server: &Server{cfg: Config{Dir: dir}}}
	if err := m.moveAside(copyOf{"S", "g"}); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(stream); err != nil {
		t.Errorf("the files were moved: %v", err)
	}
}
