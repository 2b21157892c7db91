package webhook

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/sandbox"
)

// record folds a record of one event per second, each in a message of its own.
func record(t *testing.T, bodies ...sandbox.Body) []Event {
	t.Helper()
	f := Fold{State: sandbox.State{ID: "i1", Tenant: "t"}}
	var out []Event
	for i, b := range bodies {
		at := time.Unix(int64(i), 0)
		if e, ok := f.Apply(sandbox.Event{Seq: uint64(i + 1), Time: at, Body: b}, At(uint64(i+1), 0)); ok {
			out = append(out, e)
		}
	}
	return out
}

func typesIn(all []Event) (out []Type) {
	for _, e := range all {
		out = append(out, e.Type)
	}
	return out
}

func TestLifecycleOfRecord(t *testing.T) {
	requested, placed, running := sandbox.Requested{}, sandbox.Placed{}, sandbox.Running{}
	deadline := sandbox.DeadlineSet{Deadline: time.Unix(99, 0)}
	stop, gone := sandbox.Stopping{Cause: "user"}, sandbox.Destroyed{Cause: "user"}
	tests := []struct {
		name   string
		bodies []sandbox.Body
		want   []Type
	}{
		{"created and killed", []sandbox.Body{requested, placed, running, stop, gone}, []Type{Created, Killed}},
		{"lost", []sandbox.Body{requested, placed, running, sandbox.Lost{}}, []Type{Created, Killed}},
		{"never ran", []sandbox.Body{requested, placed, sandbox.Failed{}}, nil},
		{"refused", []sandbox.Body{requested, sandbox.Refused{}}, nil},
		{"timeout before it ran", []sandbox.Body{requested, placed, deadline, running}, []Type{Created}},
		{"timeout, network", []sandbox.Body{requested, placed, running, deadline, sandbox.NetworkSet{}, sandbox.NetworkUsed{}}, []Type{Created, Updated, Updated}},
		{"paused and resumed", []sandbox.Body{requested, placed, running, sandbox.Pausing{}, sandbox.Paused{}, sandbox.Resuming{}, deadline, sandbox.Resumed{}}, []Type{Created, Paused, Resumed}},
		{"a pause that failed", []sandbox.Body{requested, placed, running, sandbox.Pausing{}, sandbox.Resumed{}}, []Type{Created}},
		{"a resume that failed", []sandbox.Body{requested, placed, running, sandbox.Pausing{}, sandbox.Paused{}, sandbox.Resuming{}, sandbox.Paused{}}, []Type{Created, Paused}},
		{"snapshot", []sandbox.Body{requested, placed, running, sandbox.Snapshotted{Snapshot: "s"}}, []Type{Created, Checkpointed}},
		{"of a build", []sandbox.Body{sandbox.Requested{Build: "b"}, placed, running, stop, gone}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := typesIn(record(t, tt.bodies...)); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// The end of a run describes it, and each run has an id of its own.
func TestExecutions(t *testing.T) {
	all := record(t, sandbox.Requested{Resources: sandbox.Resources{CPUMilli: 1500, MemoryMiB: 512}}, sandbox.Placed{}, sandbox.Running{}, // 2 s
		sandbox.Pausing{Cause: "timeout"}, sandbox.Paused{}, sandbox.Resuming{}, sandbox.Resumed{}, // 4 s, 6 s
		sandbox.Stopping{Cause: "user"}, sandbox.Destroyed{Cause: "user"}) // 8 s
	if got := typesIn(all); !slices.Equal(got, []Type{Created, Paused, Resumed, Killed}) {
		t.Fatalf("got %v", got)
	}
	paused, killed := all[1], all[3]
	if all[0].Execution != paused.Execution || all[2].Execution != killed.Execution || paused.Execution == killed.Execution {
		t.Errorf("executions %v", all)
	}
	want := ExecutionData{Started: time.Unix(2, 0), CPUs: 2, MemoryMiB: 512, Took: 2 * time.Second}
	if *paused.Ran != want || paused.Reason != "timeout" {
		t.Errorf("paused: %+v %q, want %+v", paused.Ran, paused.Reason, want)
	}
	want.Started = time.Unix(6, 0)
	if *killed.Ran != want || killed.Reason != "user" {
		t.Errorf("killed: %+v %q, want %+v", killed.Ran, killed.Reason, want)
	}
}

// Two readers of a record produce the same payload: receivers deduplicate by its id.
func TestPayloadIsTheSame(t *testing.T) {
	bodies := []sandbox.Body{sandbox.Requested{Template: "base", Metadata: map[string]string{"k": "v"}}, sandbox.Placed{}, sandbox.Running{}}
	a, b := record(t, bodies...)[0], record(t, bodies...)[0]
	first, err := a.Payload()
	second, err2 := b.Payload()
	if err != nil || err2 != nil || string(first) != string(second) {
		t.Fatalf("%s %v\n%s %v", first, err, second, err2)
	}
	var got map[string]any
	if err := json.Unmarshal(first, &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"version": "v2", "type": "sandbox.lifecycle.created", "event_category": "lifecycle", "event_label": "create",
		"sandbox_id": "i1", "sandbox_team_id": "t", "sandbox_template_id": "base", "timestamp": "1970-01-01T00:00:02Z",
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

// The value was computed with Node's crypto, as in E2B's documentation.
func TestSign(t *testing.T) {
	if got, want := Sign("secret", []byte(`{"a":1}`)), "N7005LKS7534v+cOP1BSYTkklJDDwllM8gF1unZl4B0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestParseID(t *testing.T) {
	id := NewID()
	if got, err := ParseID(strings.ToUpper(string(id))); got != id || err != nil {
		t.Errorf("%s: %s, %v", id, got, err)
	}
	for _, bad := range []string{"", "*", ">", "a.b", string(id)[1:], strings.ReplaceAll(string(id), "-", ""), "----" + string(id)[4:], string(id) + ".at"} {
		if got, err := ParseID(bad); err == nil {
			t.Errorf("%q gives %s", bad, got)
		}
	}
}

func TestCheckURL(t *testing.T) {
	operator := sandbox.Operator{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	for u, ok := range map[string]bool{
		"https://example.com/hook?x=1": true, "http://93.184.216.34:8080/": true, "http://10.1.2.3/": true,
		"": false, "example.com": false, "ftp://example.com/": false, "https:///x": false, "https://u:p@example.com/": false,
		"http://127.0.0.1/": false, "http://[::1]/": false, "http://[::ffff:127.0.0.1]/": false, "http://169.254.169.254/": false,
		"http://10.2.0.1/": false, "http://0.0.0.0/": false, "https://example.com/#x": false, "https://example.com:0/": false, "https://example.com:65536/": false, "https://example.com:65535/": true, "https://exa\nmple.com/": false,
		"https://example.com/" + strings.Repeat("x", MaxURL): false,
	} {
		if err := CheckURL(u, &operator); (err == nil) != ok {
			t.Errorf("%.60q: %v, want ok %v", u, err, ok)
		}
	}
}

func TestPositions(t *testing.T) {
	p := At(7, 3)
	if p.Rev() != 7 || At(7, 2) >= p || p > Through(7) || Through(7) >= At(8, 0) || Through(6) >= At(7, 0) {
		t.Errorf("positions are not in order: %d %d %d", p, Through(7), At(8, 0))
	}
}
