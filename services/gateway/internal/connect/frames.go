package connect

import (
	"encoding/json"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
	"github.com/millrace/millrace/events/process"
)

// wire encodes a ProcessEvent, the only field of both StartResponse and
// ConnectResponse, each in an envelope. Everything is appended by hand; a fuzz test
// compares it with the generated types.
type wire struct {
	binary bool // large messages are compressed
	gzip   bool // large messages are compressed
	snake  bool // exit_code instead of exitCode in JSON
	bare   bool // only fields of E2B's schema
}

// meta is the metadata of an event: its position in the record, and what E2B's
// schema has no field for.
type meta struct {
	cursor  cursor
	seq     process.Seq        // frame that the event is from
	process process.ID         // start event only
	dropped *process.Truncated // output that is not recorded
	omitted *process.Omitted   // output that is not kept
	missing *process.Gap       // events past retention
}

// Numbers of the fields that Millrace adds; E2B's are below 100.
const (
	fieldSeq     protowire.Number = 1000
	fieldCursor  protowire.Number = 1001
	fieldProcess protowire.Number = 1002
)

// start appends a start event.
func (w *wire) start(dst []byte, pid uint32, n *meta) []byte {
	if w.binary {
		var b [12]byte
		body := field.AppendUint(b[:0], 1, uint64(pid))
		return w.proto(dst, 1, body, n)
	}
	dst, at := openEnvelope(dst)
	dst = append(dst, `{"event":{"start":{"pid":`...)
	dst = strconv.AppendUint(dst, uint64(pid), 10)
	dst = append(dst, "}}"...)
	return w.tail(dst, at, n)
}

// dataHeads is the JSON before a data event's bytes, by stream.
var dataHeads = [...]string{
	process.Stdout: `{"event":{"data":{"stdout":"`,
	process.Stderr: `{"event":{"data":{"stderr":"`,
	process.PTY:    `{"event":{"data":{"pty":"`,
}

// data appends a data event with the bytes of a followed by those of b.
func (w *wire) data(dst []byte, s process.Stream, a, b []byte, n *meta) []byte {
	if w.binary {
		return w.protoData(dst, s, a, b, n)
	}
	dst, at := openEnvelope(dst)
	dst = append(dst, dataHeads[s]...)
	dst = appendBase64(dst, a, b)
	dst = append(dst, `"}}`...)
	return w.tail(dst, at, n)
}

// end appends an end event; its JSON has all fields, even empty ones.
func (w *wire) end(dst []byte, e *ending, n *meta) []byte {
	if w.binary {
		body := field.AppendUint(nil, 1, protowire.EncodeZigZag(int64(e.code)))
		body = field.AppendBool(body, 2, e.exited)
		body = field.AppendString(body, 3, e.status)
		body = field.PutString(body, 4, e.err)
		return w.proto(dst, 3, body, n)
	}
	name := `{"event":{"end":{"exitCode":`
	if w.snake {
		name = `{"event":{"end":{"exit_code":`
	}
	dst, at := openEnvelope(dst)
	dst = append(dst, name...)
	dst = strconv.AppendInt(dst, int64(e.code), 10)
	dst = append(dst, `,"exited":`...)
	dst = strconv.AppendBool(dst, e.exited)
	dst = append(dst, `,"status":`...)
	dst = appendJSON(dst, e.status)
	dst = append(dst, `,"error":`...)
	dst = appendJSON(dst, e.err)
	dst = append(dst, "}}"...)
	return w.tail(dst, at, n)
}

// keepalive appends a keepalive event; one with metadata carries what has no
// event of its own.
func (w *wire) keepalive(dst []byte, n *meta) []byte {
	if w.binary {
		return w.proto(dst, 4, nil, n)
	}
	dst, at := openEnvelope(dst)
	dst = append(dst, `{"event":{"keepalive":{}}`...)
	return w.tail(dst, at, n)
}

// tail ends the JSON message with its metadata, and the envelope.
func (w *wire) tail(dst []byte, at int, n *meta) []byte {
	if n != nil && !w.bare {
		if n.process != "" {
			dst = append(dst, `,"process":"`...)
			dst = append(dst, n.process...)
			dst = append(dst, '"')
		}
		if n.dropped != nil || n.omitted != nil || n.missing != nil {
			dst = n.appendHoles(dst)
		}
		dst = append(dst, `,"seq":`...)
		dst = strconv.AppendUint(dst, n.seq, 10)
		if n.cursor.partial {
			dst = append(dst, `,"cursor":"`...)
			dst = n.cursor.appendCursor(dst)
			dst = append(dst, '"')
		}
	}
	return w.close(append(dst, '}'), at)
}

// appendHoles appends which output is missing.
func (n *meta) appendHoles(dst []byte) []byte {
	if d := n.dropped; d != nil {
		dst = append(dst, `,"truncated":{"stream":"`...)
		dst = append(dst, d.Stream.String()...)
		dst = append(dst, `","dropped":`...)
		dst = strconv.AppendUint(dst, d.Dropped, 10)
		dst = append(dst, '}')
	}
	if o := n.omitted; o != nil {
		dst = append(dst, `,"omitted":{"stream":"`...)
		dst = append(dst, o.Stream.String()...)
		dst = append(dst, `","bytes":`...)
		dst = strconv.AppendUint(dst, o.Bytes, 10)
		dst = append(dst, '}')
	}
	if g := n.missing; g != nil {
		dst = append(dst, `,"gap":{"from":`...)
		dst = strconv.AppendUint(dst, g.From, 10)
		dst = append(dst, `,"to":`...)
		dst = strconv.AppendUint(dst, g.To, 10)
		dst = append(dst, `,"reason":`...)
		dst = appendJSON(dst, g.Reason)
		dst = append(dst, '}')
	}
	return dst
}

// close ends an envelope and compresses it if it is large enough.
func (w *wire) close(dst []byte, at int) []byte {
	payload := at + envelopeHead
	if !w.gzip || len(dst)-payload < compressFrom {
		return closeEnvelope(dst, at, 0)
	}
	end := len(dst)
	dst = appendGzip(dst, dst[payload:])
	n := copy(dst[payload:], dst[end:])
	return closeEnvelope(dst[:payload+n], at, flagCompressed)
}

func appendJSON(dst []byte, s string) []byte {
	raw, err := json.Marshal(s)
	if err != nil { // cannot happen for a string
		return append(dst, `""`...)
	}
	return append(dst, raw...)
}
