package codec

import (
	"reflect"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// Every kind of event in a sandbox's record survives a round trip.
func TestSandboxRoundTrip(t *testing.T) {
	bodies := []sandbox.Body{
		sandbox.Requested{
			Template: "base", Driver: "d", Metadata: map[string]string{"k": "v", "n": "1"}, JSON: []string{"n"}, Defaults: sandbox.Defaults{Sealed: "E"},
			Schedule: sandbox.Schedule{Lifetime: 9, Idle: 13, PlaceBy: time.Unix(9, 9), RunBy: time.Unix(9, 10), HardEnd: time.Unix(9, 11), Warning: 12}, RequestHash: []byte{0xff, 0}, Secure: true, AllowInternet: true, Resources: sandbox.Resources{CPUMilli: 1, MemoryMiB: 2, DiskMiB: 3, PIDs: 4},
			OnTimeout: "pause", AutoResume: true, Alias: "a", Isolation: "kernel", Origin: sandbox.Origin{From: "s1", FromSandbox: "i1", FromHost: "h"},
			Network: sandbox.Network{Allow: []string{"a.test"}, Deny: []string{"10.0.0.0/8"}, Private: true, MaskHost: "localhost:${PORT}",
				HTTPSPorts: []int{443}, Proxy: &sandbox.Proxy{Address: "a.test:1080", User: "u", Password: "\xff\x00"},
				Transforms: []sandbox.Transform{{Domain: "*.a.test", Headers: []sandbox.Header{{Name: "X", Value: "\xff\x00"}}}, {Domain: "a.test"}}},
			E2A: sandbox.E2A{App: "{}", Persistence: sandbox.Persistence{URL: "https://a.test", Auth: "\xff\x00", Conversation: "ses_1", Generation: 2}},
		},
		sandbox.Queued{Reason: "r"}, sandbox.Placed{Host: "h", Epoch: 3, Driver: "gvisor"},
		sandbox.Refused{Kind: 6, Reason: "r"},
		sandbox.Running{Driver: "d", Isolation: "process", Can: sandbox.Abilities{Pause: true, Files: true, Memory: true}, CPUMilli: 5, MemoryMiB: 6},
		sandbox.DeadlineSet{Deadline: time.Unix(7, 0)},
		sandbox.Pausing{Cause: "user", Files: true}, sandbox.Paused{Message: "m"}, sandbox.Resuming{Cause: "traffic", OnTimeout: "kill", Reboot: true, Lifetime: 8}, sandbox.Resumed{Message: "m"},
		sandbox.Snapshotted{Snapshot: "s1", Memory: true},
		sandbox.NetworkSet{Network: sandbox.Network{Internet: true, Allow: []string{"*"}}}, sandbox.NetworkUsed{Sent: 1, Received: 2, Link: sandbox.LinkUsed{Index: 3, Sent: 4, Received: 5}},
		sandbox.Warned{HardEnd: time.Unix(9, 11)}, sandbox.Mounted{Gateway: "g"}, sandbox.Unmounted{Unstored: []string{"a"}, Count: 2, Stored: time.Unix(9, 12)},
		sandbox.Stopping{Cause: "c"}, sandbox.Destroyed{Cause: "c"}, sandbox.Lost{Reason: "r"}, sandbox.Failed{Message: "m"},
	}
	data, err := EncodeSandbox("t", "i0", 5, time.Unix(1, 2), bodies)
	if err != nil {
		t.Fatal(err)
	}
	tenant, id, got, err := DecodeSandbox(data)
	if tenant != "t" || id != "i0" || err != nil || len(got) != len(bodies) {
		t.Fatalf("%q %q %d events, %v", tenant, id, len(got), err)
	}
	for i := range got {
		if !reflect.DeepEqual(got[i].Body, bodies[i]) || got[i].Seq != uint64(5+i) || !got[i].Time.Equal(time.Unix(1, 2)) {
			t.Errorf("event %d: %+v; want %+v", i, got[i], bodies[i])
		}
	}
}

func TestASandboxMessageOfAnotherVersionIsRefused(t *testing.T) {
	data, err := EncodeSandbox("t", "i0", 1, time.Unix(1, 2), []sandbox.Body{sandbox.Lost{Reason: "r"}})
	if err != nil {
		t.Fatal(err)
	}
	data[1]++ // the value of v, the first field
	if _, _, _, err := DecodeSandbox(data); !kind.Is(err, kind.Unimplemented) {
		t.Errorf("%v, want Unimplemented", err)
	}
}
