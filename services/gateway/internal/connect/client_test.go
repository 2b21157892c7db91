package connect

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/process"
	pb "github.com/millrace/millrace/schema/process"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
)

// event is a response message as decoded by a JSON client.
type event struct {
	Event struct {
		Start     *struct{ PID uint32 }
		Data      map[string]string
		End       map[string]any
		Keepalive *struct{}
	}
	Process   string
	Seq       *uint64
	Cursor    string
	Gap       any
	Truncated any
}

// split splits raw into its envelopes.
func split(t *testing.T, raw []byte) (flags []byte, payloads [][]byte) {
	t.Helper()
	for len(raw) > 0 {
		if len(raw) < envelopeHead || len(raw)-envelopeHead < int(binary.BigEndian.Uint32(raw[1:])) {
			t.Fatalf("%d bytes left over: %q", len(raw), raw)
		}
		n := envelopeHead + int(binary.BigEndian.Uint32(raw[1:]))
		payload := raw[envelopeHead:n]
		if raw[0]&flagCompressed != 0 {
			var err error
			if payload, err = gunzip(payload, 1<<30); err != nil {
				t.Fatal(err)
			}
		}
		flags, payloads, raw = append(flags, raw[0]&^flagCompressed), append(payloads, payload), raw[n:]
	}
	return flags, payloads
}

// decoder returns a function that decodes a stream as a client does.
func decoder(binary bool) func(*testing.T, []byte) []surfacetest.Unit {
	return func(t *testing.T, raw []byte) []surfacetest.Unit {
		t.Helper()
		var units []surfacetest.Unit
		flags, payloads := split(t, raw)
		for i, p := range payloads {
			switch {
			case flags[i] == flagEnd:
				units = append(units, lastUnit(t, p))
			case binary:
				units = append(units, protoUnit(t, p))
			default:
				units = append(units, jsonUnit(t, p))
			}
		}
		return units
	}
}

func lastUnit(t *testing.T, p []byte) surfacetest.Unit {
	t.Helper()
	var words endOfStream
	if err := json.Unmarshal(p, &words); err != nil {
		t.Fatalf("end of stream %q: %v", p, err)
	}
	u := surfacetest.Unit{What: surfacetest.Last}
	if words.Error != nil {
		u.Err = string(words.Error.Code)
	}
	if at := words.Metadata["x-replay-from"]; len(at) > 0 {
		u.Position = at[0]
	}
	return u
}

func jsonUnit(t *testing.T, p []byte) surfacetest.Unit {
	t.Helper()
	var ev event
	if err := json.Unmarshal(p, &ev); err != nil {
		t.Fatalf("event %q: %v", p, err)
	}
	u := surfacetest.Unit{Position: ev.Cursor}
	if u.Position == "" && ev.Seq != nil {
		u.Position = strconv.FormatUint(*ev.Seq+1, 10)
	}
	e := &ev.Event
	switch {
	case e.Start != nil:
		u.What = surfacetest.Start
	case e.End != nil:
		u.What = surfacetest.End
		u.Code = int(e.End["exitCode"].(float64))
	case ev.Gap != nil || ev.Truncated != nil:
		u.What = surfacetest.Gap
	case e.Keepalive != nil:
		u.What = surfacetest.Keepalive
	}
	for name, b64 := range e.Data {
		data, err := base64.StdEncoding.DecodeString(b64)
		if err != nil {
			t.Fatalf("event %q: %v", p, err)
		}
		u.What, u.Data = surfacetest.Data, data
		u.Stream = map[string]process.Stream{"stdout": process.Stdout, "stderr": process.Stderr, "pty": process.PTY}[name]
	}
	return u
}

func protoUnit(t *testing.T, p []byte) surfacetest.Unit {
	t.Helper()
	var m pb.StartResponse
	if err := proto.Unmarshal(p, &m); err != nil {
		t.Fatalf("event %x: %v", p, err)
	}
	u := surfacetest.Unit{}
	for raw := m.ProtoReflect().GetUnknown(); len(raw) > 0; {
		num, _, n := protowire.ConsumeTag(raw)
		raw = raw[n:]
		if num == fieldSeq {
			v, n := protowire.ConsumeVarint(raw)
			raw, u.Position = raw[n:], strconv.FormatUint(v+1, 10)
			continue
		}
		v, n := protowire.ConsumeBytes(raw)
		if raw = raw[n:]; num == fieldCursor {
			u.Position = string(v)
		}
	}
	switch ev := m.GetEvent().GetEvent().(type) {
	case *pb.ProcessEvent_Start:
		u.What = surfacetest.Start
	case *pb.ProcessEvent_End:
		u.What, u.Code = surfacetest.End, int(ev.End.GetExitCode())
	case *pb.ProcessEvent_Keepalive:
		u.What = surfacetest.Keepalive
	case *pb.ProcessEvent_Data:
		u.What = surfacetest.Data
		switch out := ev.Data.GetOutput().(type) {
		case *pb.ProcessEvent_DataEvent_Stdout:
			u.Stream, u.Data = process.Stdout, out.Stdout
		case *pb.ProcessEvent_DataEvent_Stderr:
			u.Stream, u.Data = process.Stderr, out.Stderr
		case *pb.ProcessEvent_DataEvent_Pty:
			u.Stream, u.Data = process.PTY, out.Pty
		}
	}
	return u
}
