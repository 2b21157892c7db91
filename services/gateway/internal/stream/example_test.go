package stream_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
)

// textEncoder encodes only the output of a process, without framing.
type textEncoder struct{}

func (textEncoder) AppendEvent(dst []byte, e process.Event) ([]byte, error) {
	if w, ok := e.Body.(process.Wrote); ok {
		dst = append(dst, w.Data...)
	}
	return dst, nil
}

func (textEncoder) AppendIdle(dst []byte, _ time.Duration) ([]byte, time.Duration) { return dst, 0 }

func (textEncoder) AppendEnd(dst []byte, err error) []byte {
	if err != nil {
		return fmt.Appendf(dst, "error: %v\n", err)
	}
	return append(dst, "end\n"...)
}

// stdoutWriter sends flushes to standard output.
type stdoutWriter struct{}

func (stdoutWriter) Flush(buf []byte) error {
	_, err := os.Stdout.Write(buf[stream.Headroom:])
	return err
}

func (w stdoutWriter) End(buf []byte) error { return w.Flush(buf) }

func ExampleCopy() {
	record := surfacetest.NewRecord("greeting", process.Spec{Cmd: "greet"},
		surfacetest.Out("hello\n"), surfacetest.Out("world\n"), surfacetest.Code(0))
	if err := stream.Copy(context.Background(), stdoutWriter{}, record.Source(0), textEncoder{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// hello
	// world
	// end
}
