package output

import "github.com/millrace/millrace/events/process"

// recordOutput records output within the quota.
func (r *Record) recordOutput(id process.Stream, data []byte) {
	for len(data) > 0 {
		n := min(len(data), blockSize)
		r.appendOutput(id, data[:r.withinQuota(id, n)])
		data = data[n:]
	}
}

// recordHeld records what the redaction of a stream holds back. The stream has ended.
func (r *Record) recordHeld(id process.Stream) {
	r.recordOutput(id, r.held[id])
	r.held[id] = nil
}

// recordHeld records what the redaction holds back at the end of the stream.
func (st *Stream) recordHeld() {
	if st.redactor == nil {
		return
	}
	st.r.b.mu.Lock()
	defer st.r.b.mu.Unlock()
	if !st.r.closed {
		st.r.recordHeld(st.end.ID)
	}
}

// extends reports whether n bytes of a stream fit into the last event: it was not sent yet and belongs
// to the same stream.
func (r *Record) extends(id process.Stream, n int) bool {
	e := r.spool.tail()
	return e != nil && e.stream == id && len(e.data)+n <= blockSize
}

// appendOutput adds a copy of at most a block of output to the spool: to the last event, or as a new
// event.
func (r *Record) appendOutput(id process.Stream, data []byte) {
	n := len(data)
	if n == 0 {
		return
	}
	if !r.extends(id, n) {
		r.pushOutput(id, append(make([]byte, 0, n), data...))
		return
	}
	e := r.spool.tail()
	was := e.cost()
	e.data = r.b.grow(e.data, n)
	e.data = append(e.data, data...)
	r.spool.addBytes(e.cost() - was)
	r.b.bytes += e.cost() - was
	r.countOutput(id, n)
}

// pushOutput adds an event with output, whose memory it keeps.
func (r *Record) pushOutput(id process.Stream, data []byte) {
	r.push(entry{time: r.wroteAt.UnixNano(), stream: id, offset: r.offsets[id], data: data})
	r.countOutput(id, len(data))
}

func (r *Record) countOutput(id process.Stream, n int) {
	r.offsets[id] += uint64(n)
	r.recorded += uint64(n)
	r.b.recorded += uint64(n)
}
