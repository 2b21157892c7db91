package screens

import (
	"context"
	"encoding/base64"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/screen"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// contentTypeCast is the content type of an asciicast.
const contentTypeCast = "application/x-asciicast"

// export streams everything stored of a process as an asciicast.
func (h *Handler) export(c *fiber.Ctx) error {
	p, id, err := h.target(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	sum, err := h.cfg.Records.Process(ctx, p, id)
	if err != nil {
		return err
	}
	opened, err := record.Open(ctx, h.cfg.Records, p, id, record.Options{})
	if err != nil {
		return record.WriteError(c, err)
	}
	head := stream.Head{ContentType: contentTypeCast, Headers: append(record.StreamHeaders(id, opened.After),
		[2]string{fiber.HeaderContentDisposition, `attachment; filename="` + string(id) + `.cast"`})}
	src := opened.Source
	if opened.Tail.Last == 0 {
		src = &nothing{src}
	}
	return h.cfg.Streams.Serve(c, head, src, &cast{spec: sum.Spec})
}

// cast encodes a record as asciicast v2. The data of the events "o", joined, are the output byte
// for byte. Output that is not UTF-8 has U+FFFD for each bad byte there, and is followed by an
// event "b" with its exact bytes in base64. "r" is a new size, "m" a gap in the record, and "x",
// the last event, the exit status of a process that has ended.
type cast struct {
	spec  process.Spec
	begun time.Time
	last  time.Duration // time of the last line
	carry []byte        // the beginning of a UTF-8 character
}

// AppendEvent appends the lines of an event.
func (a *cast) AppendEvent(dst []byte, e process.Event) ([]byte, error) {
	if a.begun.IsZero() {
		a.begun = e.Time
		dst = a.appendHeader(dst)
	}
	if d := e.Time.Sub(a.begun); d > a.last { // clocks may go back; an asciicast must not
		a.last = d
	}
	switch b := e.Body.(type) {
	case process.Wrote:
		return a.appendOutput(dst, b.Data), nil
	case process.Resized:
		size := strconv.Itoa(int(b.Size.Cols)) + "x" + strconv.Itoa(int(b.Size.Rows))
		return a.appendText(a.flush(dst), 'r', size), nil
	case process.Gap:
		return a.appendText(a.flush(dst), 'm', "gap: "+b.Reason), nil
	case process.Truncated:
		return a.appendText(a.flush(dst), 'm', "gap: "+strconv.FormatUint(b.Dropped, 10)+" bytes of output were dropped"), nil
	case process.Omitted:
		return a.appendText(a.flush(dst), 'm', "gap: "+strconv.FormatUint(b.Bytes, 10)+" bytes of output were not kept"), nil
	case process.Finished:
		code, _ := textenc.ExitCode(&b.Exit)
		return a.appendText(a.flush(dst), 'x', strconv.Itoa(int(code))), nil
	case process.Accepted, process.Started, process.StdinAcked, process.Signaled, process.Exited, process.Lost, process.Failed:
	}
	return dst, nil
}

func (a *cast) appendHeader(dst []byte) []byte {
	cols, rows := uint32(screen.DefaultCols), uint32(screen.DefaultRows)
	if pty := a.spec.PTY; pty != nil && pty.Cols > 0 && pty.Rows > 0 {
		cols, rows = pty.Cols, pty.Rows
	}
	dst = strconv.AppendUint(append(dst, `{"version":2,"width":`...), uint64(cols), 10)
	dst = strconv.AppendUint(append(dst, `,"height":`...), uint64(rows), 10)
	dst = strconv.AppendInt(append(dst, `,"timestamp":`...), a.begun.Unix(), 10)
	dst = textenc.AppendString(append(dst, `,"command":`...), strings.Join(append([]string{a.spec.Cmd}, a.spec.Args...), " "))
	return append(dst, "}\n"...)
}

// appendOutput appends output, and keeps the beginning of a character for the next.
func (a *cast) appendOutput(dst, data []byte) []byte {
	if len(a.carry) > 0 {
		data = append(a.carry, data...)
	}
	whole := len(data) - partial(data)
	a.carry = append([]byte(nil), data[whole:]...)
	return a.appendData(dst, data[:whole])
}

// partial returns the number of bytes at the end of b that begin a character.
func partial(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if tail := b[len(b)-i:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return i
		}
	}
	return 0
}

func (a *cast) appendData(dst, data []byte) []byte {
	if len(data) == 0 {
		return dst
	}
	dst = a.appendLine(dst, 'o', data)
	if utf8.Valid(data) {
		return dst
	}
	dst = append(a.appendStart(dst, 'b'), '"')
	dst = base64.StdEncoding.AppendEncode(dst, data)
	return append(dst, "\"]\n"...)
}

// flush appends the bytes that were kept.
func (a *cast) flush(dst []byte) []byte {
	dst = a.appendData(dst, a.carry)
	a.carry = nil
	return dst
}

func (a *cast) appendText(dst []byte, code byte, text string) []byte {
	return a.appendLine(dst, code, []byte(text))
}

func (a *cast) appendLine(dst []byte, code byte, data []byte) []byte {
	dst = a.appendStart(dst, code)
	dst = textenc.AppendText(dst, data)
	return append(dst, "]\n"...)
}

func (a *cast) appendStart(dst []byte, code byte) []byte {
	dst = strconv.AppendFloat(append(dst, '['), a.last.Seconds(), 'f', 6, 64)
	return append(dst, ',', ' ', '"', code, '"', ',', ' ')
}

// AppendIdle does nothing: everything is stored.
func (a *cast) AppendIdle(dst []byte, _ time.Duration) ([]byte, time.Duration) { return dst, 0 }

// Incomplete is the beginning of the text of the event "m" with which an export ends that was
// broken off.
const Incomplete = "incomplete: "

// AppendEnd appends what was kept, and the reason if not everything was sent.
func (a *cast) AppendEnd(dst []byte, err error) []byte {
	if a.begun.IsZero() {
		a.begun = time.Now()
		dst = a.appendHeader(dst)
	}
	dst = a.flush(dst)
	if err != nil {
		dst = a.appendText(dst, 'm', Incomplete+"the export was broken off")
	}
	return dst
}

// nothing is a Source that ends at once.
type nothing struct{ stream.Source }

// Next returns io.EOF.
func (nothing) Next(context.Context, time.Duration) ([]process.Event, error) { return nil, io.EOF }
