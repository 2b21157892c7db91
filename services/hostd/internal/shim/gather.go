package shim

import "time"

// gather tells when to let more come into a pipe before it is read. Where a system
// call is dear, as in gVisor, who prints in small pieces pays most for those that
// wake the shim, and the shim for being woken. What comes after a pause is read at
// once, and so is what comes slowly. Its zero value never waits.
type gather struct {
	wait    time.Duration // 0: never
	got     int           // bytes since the pipe was empty
	emptied time.Time     // when it was
	fast    bool          // at fastRate, the last time
}

const (
	fastRate    = 16 << 20 // bytes a second
	fastFrom    = 4 << 10  // bytes at once: no keystroke's echo
	gatherPipe  = 16 * blockSize
	gatherPause = 3 // times wait: after that, what comes is something new
)

// empty notes down that all there was has been read.
func (g *gather) empty(now time.Time) {
	g.fast = g.got >= fastFrom && now.Sub(g.emptied) < time.Duration(g.got)*time.Second/fastRate
	g.got, g.emptied = 0, now
}

// due is how long to wait before what there is now is read.
func (g *gather) due(now time.Time) time.Duration {
	if !g.fast || now.Sub(g.emptied) > gatherPause*g.wait {
		return 0
	}
	return g.wait
}

// gather waits, as long as it may, for more to come into a busy pipe.
func (st *stream) gather() {
	st.mu.Lock()
	wait := st.gathers.due(time.Now())
	if wait > 0 && !st.wide {
		st.widen(gatherPipe)
	}
	st.mu.Unlock()
	if wait > 0 {
		time.Sleep(wait)
	}
}
