package llm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
)

// maxEvent limits the data of one event.
const maxEvent = 4 << 20

var errEventSize = fmt.Errorf("an event of the answer has more than %d bytes", maxEvent)

// Events decodes a stream of server-sent events, and yields the data of each. The data is valid until
// the next one. The end of the stream is the end of the sequence; an event that it cuts off is dropped.
func Events(r io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		d := lineReader{r: bufio.NewReaderSize(r, 16<<10)}
		var data []byte
		has, first := false, true
		for {
			line, err := d.next()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield(nil, err)
				}
				return
			}
			if first {
				line, first = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")), false
			}
			if len(line) == 0 {
				if has && !yield(data, nil) {
					return
				}
				data, has = data[:0], false
				continue
			}
			name, value, _ := bytes.Cut(line, []byte(":"))
			if string(name) != "data" {
				continue // a comment, or a field of which the APIs repeat what matters in the data
			}
			if has {
				data = append(data, '\n')
			}
			data, has = append(data, bytes.TrimPrefix(value, []byte(" "))...), true
			if len(data) > maxEvent {
				yield(nil, errEventSize)
				return
			}
		}
	}
}

// lineReader reads lines that end with LF, CR or both.
type lineReader struct {
	r    *bufio.Reader
	line []byte
	cr   bool // the last line ended with CR: an LF that follows belongs to it
}

// next returns a line without its end; io.EOF at the end of the stream, also within a line.
func (l *lineReader) next() ([]byte, error) {
	l.line = l.line[:0]
	for {
		if _, err := l.r.Peek(1); err != nil {
			return nil, err
		}
		b, _ := l.r.Peek(l.r.Buffered())
		if l.cr {
			l.cr = false
			if b[0] == '\n' {
				l.r.Discard(1) //nolint:errcheck // it is in the buffer
				continue
			}
		}
		n := bytes.IndexAny(b, "\r\n")
		if n < 0 {
			l.line = append(l.line, b...)
			l.r.Discard(len(b)) //nolint:errcheck // see above
			if len(l.line) > maxEvent {
				return nil, errEventSize
			}
			continue
		}
		l.line = append(l.line, b[:n]...)
		l.cr = b[n] == '\r'
		l.r.Discard(n + 1) //nolint:errcheck // see above
		return l.line, nil
	}
}
