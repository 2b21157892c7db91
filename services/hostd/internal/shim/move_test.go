package shim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/process"
)

// attachAsOther returns a hostd that attaches to h's shim as another sandbox's, as if the shim
// had been restored there from memory.
func (h *host) attachAsOther(hold bool, tokens ...string) *host {
	h.t.Helper()
	h.disconnect()
	o := newHost(h.t, h.socket)
	o.sandbox, o.holdAcks = "other", hold
	for _, token := range tokens {
		o.procs[token] = &rec{out: make(map[process.Stream][]byte)}
	}
	o.connect()
	return o
}

// awaitExactOutput waits until the output of a process equals want.
func (h *host) awaitExactOutput(token, want string) *rec {
	h.t.Helper()
	p := h.procs[token]
	h.await(fmt.Sprintf("%q", want), func() bool { return string(p.out[process.Stdout]) == want })
	return p
}

// until returns a record's output up to a seq.
func (r *rec) until(seq uint64, id process.Stream) string {
	n := len(r.out[id])
	for _, e := range r.events {
		if w, ok := e.Body.(process.Wrote); ok && e.Seq > seq && w.Stream == id {
			n = min(n, int(w.Offset))
		}
	}
	return string(r.out[id][:n])
}

// TestMovesToAnotherSandbox: in another sandbox a process's record restarts after the last
// ack in the old one. Both together have every byte once, including those in flight.
func TestMovesToAnotherSandbox(t *testing.T) {
	h := connected(t)
	spec := sh(`while read x; do echo got $x; echo err $x >&2; done; exit 7`)
	spec.Stdin = true
	token := h.start(spec)
	for _, line := range []string{"1", "2"} {
		h.stdin(token, line+"\n", false)
	}
	h.awaitExactOutput(token, "got 1\ngot 2\n")
	h.mu.Lock()
	h.holdAcks = true
	h.mu.Unlock()
	h.stdin(token, "3\n", false)
	before := h.awaitExactOutput(token, "got 1\ngot 2\ngot 3\n")

	o := h.attachAsOther(false, token)
	moved := o.moved[token]
	if moved == nil {
		t.Fatal("no Moved for the process")
	}
	if got, err := process.ParseSpec(moved.Spec); err != nil || got.Cmd != spec.Cmd || !got.Stdin {
		t.Errorf("spec %+v, %v", got, err)
	}
	o.stdin(token, "4\n", false)
	o.stdin(token, "", true)
	after := o.awaitEnd(token)
	if before.acked != moved.After || before.last() == moved.After {
		t.Errorf("continues after %d; %d of %d events were acked", moved.After, before.acked, before.last())
	}
	if _, ok := after.events[0].Body.(process.Started); !ok || after.started != before.started || describe(after.end) != "exited 7" {
		t.Errorf("pid %d and end %s; pid %d before", after.started, describe(after.end), before.started)
	}
	for id, word := range map[process.Stream]string{process.Stdout: "got", process.Stderr: "err"} {
		want := strings.ReplaceAll("W 1\nW 2\nW 3\nW 4\n", "W", word)
		if got := before.until(moved.After, id) + string(after.out[id]); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
	o.settle()
	o.connect()
	if len(o.moved) > 0 {
		t.Error("Moved was sent again")
	}
}

// TestMovesAgain: events that hostd did not acknowledge of a moved process are sent again
// to the next sandbox. Neither a finished process nor a watch moves.
func TestMovesAgain(t *testing.T) {
	h := connected(t)
	h.holdAcks = true
	over := h.start(sh("echo over"))
	h.awaitEnd(over)
	runs := h.start(sh("echo runs; exec sleep 1000"))
	h.awaitExactOutput(runs, "runs\n")
	left := h.start(sh("sleep 1000 & echo left"))
	h.await("its exit", func() bool { return h.procs[left].exit != nil })

	o := h.attachAsOther(true, runs, left)
	if len(o.moved) != 2 || o.moved[over] != nil {
		t.Fatalf("moved: %v", o.moved)
	}
	o.awaitExactOutput(runs, "runs\n")
	o.await("the exit of a process whose pipe is open", func() bool { return o.procs[left].exit != nil })
	again := o.attachAsOther(false, runs, left) // nothing was stored
	if len(again.moved) != 2 || again.moved[runs].After != o.moved[runs].After {
		t.Errorf("moved: %v, then %v", o.moved, again.moved)
	}
	again.awaitExactOutput(runs, "runs\n")
	again.signal(runs, 9)
	if p := again.awaitEnd(runs); describe(p.end) != "killed by 9" {
		t.Errorf("end %s", describe(p.end))
	}
}
