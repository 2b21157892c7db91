package session

import (
	"fmt"

	"github.com/millrace/millrace/events/process"
)

// The protocol numbers the output, the exit and the close of a process densely from 1, and a
// client that misses a number waits for it for ever. The record numbers all events densely
// from 1. So the protocol's seq is the record's minus two: the first two events say that the
// process was accepted and started. Later events that the protocol does not have, such as the
// acknowledgement of input, become output without bytes. They are held back until something
// visible follows, so that they wake no reader.
//
// The alternative, to count the visible events, needs the whole record to be read on every
// gateway that a client resumes at, and is impossible once retention has removed its beginning.
const unseen = 2

// recordSeq returns the position in the record behind which the events after seq begin.
func recordSeq(seq uint64) process.Seq { return seq + unseen }

// itemKind is the kind of an item.
type itemKind uint8

const (
	itemOutput itemKind = iota
	itemExited
	itemClosed
)

// item is an event of the protocol.
type item struct {
	seq    uint64
	kind   itemKind
	stream string
	data   []byte
	exit   *process.Exit // of itemExited and itemClosed
}

// maxFiller is the largest hole that is filled with empty output. A larger one is left open.
const maxFiller = 4096

// translator turns the events of a record, in order, into items.
type translator struct {
	next   uint64 // seq of the next item
	exited bool   // the record has an Exited, at whatever position
	tty    bool
}

// append appends the items that an event becomes; none for one that is held back or was
// translated before.
func (t *translator) append(dst []item, e *process.Event) []item {
	if e.Seq <= unseen || e.Seq-unseen < t.next {
		return dst
	}
	seq := e.Seq - unseen
	switch b := e.Body.(type) {
	case process.Wrote:
		return t.output(dst, seq, b.Stream.String(), b.Data)
	case process.Exited:
		t.exited = true
		return t.emit(dst, item{seq: seq, kind: itemExited, exit: &b.Exit})
	case process.Finished:
		if !t.exited { // its host was lost, or its sandbox ended
			dst = t.emit(dst, item{seq: seq, kind: itemExited, exit: &b.Exit})
			seq++
		}
		return t.emit(dst, item{seq: seq, kind: itemClosed, exit: &b.Exit})
	case process.Gap:
		if t.next == 1 { // the oldest output is not retained any more
			t.next = seq + 1
			return dst
		}
		return t.notice(dst, seq, "output is missing here")
	case process.Truncated:
		return t.notice(dst, seq, fmt.Sprintf("%d bytes of %s were dropped here", b.Dropped, b.Stream))
	case process.Omitted:
		return t.notice(dst, seq, fmt.Sprintf("%d bytes of %s were not kept", b.Bytes, b.Stream))
	default:
		return dst // held back
	}
}

// notice appends a text in place of what is missing: a hole must not pass for complete output.
func (t *translator) notice(dst []item, seq uint64, text string) []item {
	stream := process.Stderr
	if t.tty {
		stream = process.PTY
	}
	return t.output(dst, seq, stream.String(), []byte("[millrace: "+text+"]\n"))
}

func (t *translator) output(dst []item, seq uint64, stream string, data []byte) []item {
	return t.emit(dst, item{seq: seq, kind: itemOutput, stream: stream, data: data})
}

// emit appends an item behind those that were held back.
func (t *translator) emit(dst []item, i item) []item {
	if i.seq-t.next <= maxFiller {
		stream := process.Stdout
		if t.tty {
			stream = process.PTY
		}
		for ; t.next < i.seq; t.next++ {
			dst = append(dst, item{seq: t.next, kind: itemOutput, stream: stream.String()})
		}
	}
	t.next = i.seq + 1
	return append(dst, i)
}

// rest appends the close of a record that ended without an Exited, if the client has seen the
// exit only. finished is the seq of the record's last event.
func (t *translator) rest(dst []item, finished process.Seq, exit *process.Exit) []item {
	if t.exited || finished <= unseen || t.next != finished-unseen+1 {
		return dst
	}
	return t.emit(dst, item{seq: t.next, kind: itemClosed, exit: exit})
}

// signalBase is added to a signal's number to make an exit code, as shells do.
const signalBase = 128

// exitCode returns the code of an exit; -1 if the end was not observed.
func exitCode(x *process.Exit) int32 {
	switch {
	case x.Code != nil:
		return *x.Code
	case x.Signal != 0:
		return signalBase + x.Signal
	}
	return -1
}

// failure returns the reason why the end of a process was not observed; empty if it was.
func failure(x *process.Exit) string {
	switch {
	case x.Seen():
		return ""
	case x.Message != "":
		return x.Message
	}
	return "the end of the process was not observed: " + string(x.Cause)
}
