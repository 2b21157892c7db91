package fifolink

import "bytes"

// record is a record that a listener has read. Its data is valid until the next read.
type record struct {
	kind byte // kindSync (data is the nonce), kindData, kindEnd; 0: the connection is broken
	to   byte // of a sync: version or aside
	sum  uint32
	data []byte
}

// reader reads a listener's stream. Its state is either searching for a sync, or open and
// at the start of a record.
type reader struct {
	buf    buffer
	open   bool
	sum    uint32 // of the previous record
	zeroes int    // consecutive ones, while searching
}

// next returns the next record; its error is fill's.
func (r *reader) next(fill func(*buffer) error) (record, error) {
	for {
		step := r.search
		if r.open {
			step = r.follow
		}
		if rec, more := step(r.buf.bytes()); !more {
			return rec, nil
		}
		if err := fill(&r.buf); err != nil {
			return record{}, err
		}
	}
}

// search searches for a sync; more reports that it needs more bytes.
func (r *reader) search(b []byte) (rec record, more bool) {
	for {
		for len(b) > 0 && b[0] == 0 {
			n := len(b) - len(bytes.TrimLeft(b, "\x00"))
			r.zeroes += n
			r.buf.skip(n)
			b = b[n:]
		}
		if len(b) == 0 {
			return rec, true
		}
		if r.zeroes >= maxRecord {
			kind, data, n, err := parseRecord(b, 0)
			if n == 0 {
				return rec, true
			}
			if err == nil && kind == kindSync && len(data) == helloLen && (data[0] == version || data[0] == aside) {
				rec = record{kindSync, data[0], sumOf(b), data[1:]}
				r.open, r.sum = true, rec.sum
				r.buf.skip(n)
				return rec, false
			}
		}
		r.zeroes = 0
		n := bytes.IndexByte(b, 0)
		if n < 0 {
			n = len(b)
		}
		r.buf.skip(n)
		b = b[n:]
	}
}

// follow reads the next record of a connection.
func (r *reader) follow(b []byte) (rec record, more bool) {
	if len(b) == 0 {
		return rec, true
	}
	if b[0] == 0 { // a new dial: the previous dialer is gone
		r.open, r.zeroes = false, 0
		return record{kind: kindEnd}, false
	}
	kind, data, n, err := parseRecord(b, r.sum)
	if n == 0 {
		return rec, true
	}
	if err == nil && (kind == kindData || kind == kindEnd) {
		rec = record{kind: kind, sum: sumOf(b), data: data}
		r.sum = rec.sum
	}
	r.open, r.zeroes = rec.kind == kindData, 0
	r.buf.skip(n) // the whole invalid record: padding follows it, not data
	return rec, false
}
