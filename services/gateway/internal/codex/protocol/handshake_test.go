package protocol_test

import (
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
)

func message(kind jsonrpc.Kind, method string) *jsonrpc.Message {
	m := &jsonrpc.Message{Kind: kind, Method: method}
	if kind != jsonrpc.Notification {
		m.ID = []byte("1")
	}
	return m
}

//
func TestHandshake(t *testing.T) {
	const request, note, response = jsonrpc.Request, jsonrpc.Notification, jsonrpc.Response
	tests := []struct {
		name   string
		state  protocol.State
		kind   jsonrpc.Kind
		method string
		action protocol.Action
		next   protocol.State
		code   jsonrpc.Code
		text   string
	}{
		{"the first message", protocol.StateNew, request, "initialize", protocol.Run, protocol.StateNew, 0, ""},
		{"start before initialize", protocol.StateNew, request, "process/start", protocol.Refuse, protocol.StateNew, -32600, "client must call initialize before using exec methods"},
		{"read before initialize", protocol.StateNew, request, "process/read", protocol.Refuse, protocol.StateNew, -32600, "client must call initialize before using exec methods"},
		{"a file before initialize", protocol.StateNew, request, "fs/readFile", protocol.Refuse, protocol.StateNew, -32600, "client must call initialize before using filesystem methods"},
		{"info before initialize", protocol.StateNew, request, "environment/info", protocol.Refuse, protocol.StateNew, -32600, "client must call initialize before using environment info methods"},
		{"initialized before initialize", protocol.StateNew, note, "initialized", protocol.Close, protocol.StateClosed, -32600, "initialized was sent before initialize"},
		{"write before initialized", protocol.StateAnswered, request, "process/write", protocol.Refuse, protocol.StateAnswered, -32600, "client must send initialized before using exec methods"},
		{"terminate before initialized", protocol.StateAnswered, request, "process/terminate", protocol.Refuse, protocol.StateAnswered, -32600, "client must send initialized before using exec methods"},
		{"initialized", protocol.StateAnswered, note, "initialized", protocol.Skip, protocol.StateReady, 0, ""},
		{"initialize twice", protocol.StateAnswered, request, "initialize", protocol.RefuseTwice, protocol.StateAnswered, -32600, "initialize may only be sent once per connection"},
		{"initialize once ready", protocol.StateReady, request, "initialize", protocol.RefuseTwice, protocol.StateReady, -32600, "initialize may only be sent once per connection"},
		{"start", protocol.StateReady, request, "process/start", protocol.Run, protocol.StateReady, 0, ""},
		{"initialized twice", protocol.StateReady, note, "initialized", protocol.Skip, protocol.StateReady, 0, ""},
		{"another notification", protocol.StateReady, note, "foo", protocol.Close, protocol.StateClosed, -32600, "unexpected notification: foo"},
		{"a method as a notification", protocol.StateReady, note, "process/terminate", protocol.Close, protocol.StateClosed, -32600, "unexpected notification: process/terminate"},
		{"a response", protocol.StateReady, response, "", protocol.Close, protocol.StateClosed, -32600, "the server sent no request with this id"},
		{"a name that no release had", protocol.StateReady, request, "zzz", protocol.NotKnown, protocol.StateReady, -32600, "unknown method: zzz"},
		{"a notification of the server", protocol.StateReady, request, "process/output", protocol.NotKnown, protocol.StateReady, -32600, "unknown method: process/output"},
		{"initialized as a request", protocol.StateReady, request, "initialized", protocol.NotKnown, protocol.StateReady, -32600, "unknown method: initialized"},
		{"a released method", protocol.StateReady, request, "capabilities/discoverV2", protocol.NoMethod, protocol.StateReady, -32601, "method capabilities/discoverV2 is not offered"},
		{"an unknown name before initialize", protocol.StateNew, request, "zzz", protocol.NotKnown, protocol.StateNew, -32600, "unknown method: zzz"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := message(tt.kind, tt.method)
			in, method := protocol.Classify(m)
			action, next := tt.state.On(in)
			if action != tt.action || next != tt.next {
				t.Fatalf("got %d, %d; want %d, %d", action, next, tt.action, tt.next)
			}
			err := tt.state.Refusal(action, m, method)
			if tt.code == 0 && err != nil || tt.code != 0 && (err == nil || err.Code != tt.code || err.Message != tt.text) {
				t.Errorf("got %+v", err)
			}
		})
	}
}

// model is the handshake in other words: two facts instead of a state.
type model struct{ answered, ready, closed bool }

func (m *model) on(in protocol.Input) protocol.Action {
	switch {
	case m.closed:
		return protocol.Skip
	case in == protocol.InputMalformed:
		return protocol.BadMessage
	case in == protocol.InputUnknown:
		return protocol.NotKnown
	case in == protocol.InputNotOffered:
		return protocol.NoMethod
	case in == protocol.InputInitialize && m.answered:
		return protocol.RefuseTwice
	case in == protocol.InputInitialize, in == protocol.InputCall && m.ready:
		return protocol.Run
	case in == protocol.InputCall:
		return protocol.Refuse
	case in == protocol.InputInitialized && m.answered:
		m.ready = true
		return protocol.Skip
	}
	m.closed = true
	return protocol.Close
}

// Any sequence of messages gives the actions of the model. A third of the initializes fail.
func TestHandshakeFollowsTheModel(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		var m model
		s := protocol.StateNew
		for range 40 {
			in := protocol.Input(r.IntN(int(protocol.InputMalformed) + 1))
			want := m.on(in)
			got, next := s.On(in)
			if got != want {
				t.Fatalf("seed %d: input %d in state %d: got action %d, want %d", seed, in, s, got, want)
			}
			if s = next; in == protocol.InputInitialize && got == protocol.Run && r.IntN(3) > 0 {
				m.answered, s = true, s.Attached()
			}
			if (s == protocol.StateReady) != (m.ready && !m.closed) || (s == protocol.StateClosed) != m.closed {
				t.Fatalf("seed %d: state %d, model %+v", seed, s, m)
			}
		}
	}
}

func TestLookup(t *testing.T) {
	for name, offered := range map[string]bool{
		"process/start": true, "fs/walk": true, "http/request": true, "environment/status": true,
		"environmentConfig/read": false, "network/policyRequest": false,
	} {
		if m, ok := protocol.Lookup(name); !ok || m.Offered != offered || m.Since == "" {
			t.Errorf("%s: %+v, %v", name, m, ok)
		}
	}
	for _, name := range []string{"", "Process/start", "process/start ", "process/closed", "fs/", "zzz"} {
		if m, ok := protocol.Lookup(name); ok {
			t.Errorf("%q: %+v", name, m)
		}
	}
}
