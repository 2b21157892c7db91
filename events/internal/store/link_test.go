package store

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// pipeLinks returns links with a connection without a peer.
func pipeLinks(t *testing.T) (*links, net.Conn) {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	return &links{last: &link{a}}, b
}

func TestAServerWithoutResponsesIsLeftAfterTwoTimeouts(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := begin.Add
	type step struct {
		answered bool
		read     bool
		other    bool          // of another stream
		began    time.Duration // start of an attempt that times out
		want     bool
	}
	tests := []struct {
		name  string
		steps []step
	}{
		{"one timeout", []step{{began: 0}}},
		{"two timeouts", []step{{began: 0}, {began: attempt, want: true}}},
		{"a hundred at once", []step{{began: 0}, {began: 0}, {began: 0}, {began: time.Millisecond}}},
		{"a response in between", []step{{began: 0}, {answered: true}, {began: attempt}}},
		{"answered reads do not compensate for appends", []step{{began: 0}, {answered: true, read: true}, {began: attempt, want: true}}},
		{"unanswered reads", []step{{began: 0, read: true}, {began: attempt, read: true, want: true}}},
		{"answers for another stream do not compensate", []step{{began: 0}, {answered: true, other: true}, {began: attempt, want: true}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ls, _ := pipeLinks(t)
			for i, s := range tt.steps {
				subject := "host.a"
				if s.read {
					subject = "$JS.API.STREAM.MSG.GET.HOSTS"
				}
				if s.other {
					subject = "out.00.a.b.c"
				}
				if s.answered {
					ls.answer(subject)
					continue
				}
				if got := ls.timeout(subject, at(s.began), at(s.began+attempt)); got != s.want {
					t.Errorf("step %d: switched %v, want %v", i, got, s.want)
				}
			}
		})
	}
}

// Without a leader no server is better than another: the intervals between switches grow.
func TestIntervalsBetweenSwitchesGrow(t *testing.T) {
	ls, _ := pipeLinks(t)
	conn := ls.last
	n := 0
	for d := time.Duration(0); d < 5*time.Minute; d += attempt {
		if ls.timeout("host.a", time.Unix(1000, 0).Add(d), time.Unix(1000, 0).Add(d+attempt)) {
			n++
			ls.last, ls.unanswered["HOSTS"] = conn, unanswered{last: ls.unanswered["HOSTS"].last} // like Dial
		}
	}
	if n < 5 || n > 10 {
		t.Errorf("%d switches in 5 minutes, want 5 to 10", n)
	}
}

// A silent server is left, even while a write to it is blocked.
func TestASilentServerIsLeft(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a silence of seconds")
	}
	ls, _ := pipeLinks(t)
	wrote := make(chan error, 1)
	go func() {
		_, err := ls.last.Write([]byte("PING\r\n")) // it is not read
		wrote <- err
	}()
	began := time.Now()
	_, err := ls.last.Read(make([]byte, 1))
	if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took < linkSilence || took > linkSilence+30*time.Second {
		t.Errorf("read ended after %v: %v", took, err)
	}
	if err := <-wrote; err == nil {
		t.Error("the write succeeded")
	}
}

// A server that is cut off from the others answers at once that it knows no leader. That is
// no answer of a leader.
func TestAnAnswerWithoutALeader(t *testing.T) {
	for data, want := range map[string]bool{
		`{"type":"io.nats.jetstream.api.v1.stream_msg_get_response","error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`: true,
		`{"type":"io.nats.jetstream.api.v1.stream_msg_get_response","error":{"code":404,"err_code":10037,"description":"no message found"}}`:                         false,
		`{"stream":"HOSTS","seq":10008}`: false,
	} {
		if got := leaderless([]byte(data)); got != want {
			t.Errorf("leaderless(%s) = %v, want %v", data, got, want)
		}
	}
}
