package frame

import (
	"bytes"
	"iter"
	"slices"

	"github.com/millrace/millrace/events/kind"
)

// idleBuffer is the size of the buffer that a Decoder keeps between frames.
const idleBuffer = 16 << 10

// Frame is a decoded frame.
type Frame struct {
	Kind    Kind
	Payload []byte // valid until the next frame
	End     int64  // number of bytes that the decoder consumed up to the end of this frame
}

// Decoder decodes frames from chunks of a stream. It belongs to one goroutine.
type Decoder struct {
	max     int
	buf     []byte // encoded beginning of a frame, or its decoded content
	at      int64  // number of bytes consumed
	discard bool   // whether everything up to the next end of a frame is dropped
	over    bool   // whether that is because the frame is too large
}

// NewDecoder returns a decoder of frames with payloads of at most limit bytes.
func NewDecoder(limit int) *Decoder { return &Decoder{max: limit} }

// Resync makes the decoder discard everything up to the end of the current frame, without an
// error: a reader that starts within a stream calls it first.
func (d *Decoder) Resync() { d.buf, d.discard, d.over = d.buf[:0], true, false }

// Partial returns the number of bytes since the end of the last frame.
func (d *Decoder) Partial() int { return len(d.buf) }

// Feed yields the frames that end in chunk, in order, and an error in place of each frame that is
// malformed or too large; the End of such a frame is set. All of chunk is consumed if the caller
// ranges over everything; a caller that stops before cannot continue.
func (d *Decoder) Feed(chunk []byte) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		for len(chunk) > 0 {
			n := bytes.IndexByte(chunk, 0)
			if n < 0 {
				d.at += int64(len(chunk))
				d.hold(chunk)
				return
			}
			d.at += int64(n + 1)
			f, ok, err := d.end(chunk[:n])
			chunk = chunk[n+1:]
			if ok || err != nil {
				if !yield(f, err) {
					return
				}
			}
			d.release()
		}
	}
}

// hold keeps the beginning of a frame, unless the frame is too large already.
func (d *Decoder) hold(part []byte) {
	if d.discard {
		return
	}
	if len(d.buf)+len(part) > EncodedLen(d.max) {
		d.buf, d.discard, d.over = nil, true, true
		return
	}
	d.buf = append(d.buf, part...)
}

// end decodes the frame whose last bytes are rest. It returns false if there is none.
func (d *Decoder) end(rest []byte) (Frame, bool, error) {
	f := Frame{End: d.at}
	discard, over := d.discard, d.over
	d.discard, d.over = false, false
	switch {
	case discard && !over, len(d.buf)+len(rest) == 0 && !over:
		return f, false, nil
	case over, len(d.buf)+len(rest) > EncodedLen(d.max):
		return f, false, d.tooLarge()
	}
	src := rest
	if d.buf = slices.Grow(d.buf, len(rest)); len(d.buf) > 0 {
		d.buf = append(d.buf, rest...)
		src = d.buf
	}
	out, ok := unstuff(d.buf[:0], src)
	d.buf = out[:0]
	switch {
	case !ok || len(out) == 0:
		return f, false, kind.New(kind.Invalid, "decode frame", "", "the frame is malformed")
	case len(out)-1 > d.max:
		return f, false, d.tooLarge()
	}
	f.Kind, f.Payload = Kind(out[0]), out[1:]
	if f.Kind < Text || f.Kind > Control {
		return Frame{End: d.at}, false, kind.Newf(kind.Invalid, "decode frame", "", "the kind of the frame is %d: it must be 1, 2 or 3", f.Kind)
	}
	return f, true, nil
}

func (d *Decoder) tooLarge() error {
	return kind.Newf(kind.Exhausted, "decode frame", "", "the frame is too large: at most %d bytes", d.max)
}

// release drops a buffer that a large frame left, so that idle decoders stay small.
func (d *Decoder) release() {
	if d.buf = d.buf[:0]; cap(d.buf) > idleBuffer {
		d.buf = nil
	}
}
