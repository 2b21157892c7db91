package output

import "time"

// coalescer decides when to wait for more output in a pipe before it is read. If system calls
// are slow, as in gVisor, each wakeup of the shim costs the writer of small pieces and the
// shim. Output after a pause, and slow output, is read at once. The zero value never waits.
type coalescer struct {
	wait      time.Duration // 0: never
	got       int           // bytes since the pipe was last empty
	emptiedAt time.Time     // time when the pipe was last empty
	fast      bool          // output came at fastRate or faster before that
}

const (
	fastRate      = 16 << 20 // bytes a second
	fastFrom      = 4 << 10  // bytes at once: more than the echo of a keystroke
	coalescePipe  = 16 * blockSize
	coalescePause = 3 // times wait: output after a longer pause is new
)

// empty records that the pipe was read until empty.
func (g *coalescer) empty(now time.Time) {
	g.fast = g.got >= fastFrom && now.Sub(g.emptiedAt) < time.Duration(g.got)*time.Second/fastRate
	g.got, g.emptiedAt = 0, now
}

// due returns how long to wait before the next read.
func (g *coalescer) due(now time.Time) time.Duration {
	if !g.fast || now.Sub(g.emptiedAt) > coalescePause*g.wait {
		return 0
	}
	return g.wait
}

// coalesce waits for more output in a busy pipe, as long as due allows.
func (st *Stream) coalesce() {
	st.mu.Lock()
	wait := st.coalescer.due(time.Now())
	if wait > 0 && !st.widened {
		st.widen(coalescePipe)
	}
	st.mu.Unlock()
	if wait > 0 {
		time.Sleep(wait)
	}
}
