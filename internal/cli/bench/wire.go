package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/millrace/millrace/internal/cli/client"
)

// This file implements the part of the E2B SDKs' protocol, Connect with binary protobuf,
// that measuring a Start requires: most traffic of real clients uses it.

// connectStart starts a command and calls f for each event with its field number (1 start,
// 2 data, 3 end) and the number of output bytes in it.
func connectStart(ctx context.Context, c *client.Client, sbx string, cmd string, args []string, f func(kind int, n int)) error {
	config := appendField(nil, 1, []byte(cmd))
	for _, a := range args {
		config = appendField(config, 2, []byte(a))
	}
	msg := appendField(nil, 1, config)
	msg = append(msg, 4<<3, 0) // stdin: false
	body := make([]byte, 5, 5+len(msg))
	binary.BigEndian.PutUint32(body[1:], uint32(len(msg)))
	resp, err := c.Open(ctx, &client.Request{
		Method: http.MethodPost, Path: "/process.Process/Start", Body: append(body, msg...),
		Header: map[string]string{
			"Content-Type": "application/connect+proto", "Connect-Protocol-Version": "1", "E2b-Sandbox-Id": sbx,
		},
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return readEnvelopes(bufio.NewReaderSize(resp.Body, 256<<10), f)
}

const (
	flagEnd  = 2
	fieldLen = 2 // wire type of strings, bytes and messages
)

var errWire = errors.New("the gateway sent a malformed stream")

func readEnvelopes(in *bufio.Reader, f func(kind int, n int)) error {
	var head [5]byte
	var buf []byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return fmt.Errorf("stream interrupted: %w", err)
		}
		n := int(binary.BigEndian.Uint32(head[1:]))
		if cap(buf) < n {
			buf = make([]byte, n)
		}
		buf = buf[:n]
		if _, err := io.ReadFull(in, buf); err != nil {
			return fmt.Errorf("stream interrupted: %w", err)
		}
		if head[0]&flagEnd != 0 {
			if string(buf) != "{}" {
				return fmt.Errorf("the stream ended with %s", buf)
			}
			return nil
		}
		kind, n, err := eventKind(buf)
		if err != nil {
			return err
		}
		f(kind, n)
	}
}

// eventKind decodes StartResponse{event=1 ProcessEvent{start=1|data=2|end=3}}, where data
// is {stdout=1|stderr=2|pty=3 bytes}.
func eventKind(msg []byte) (kind, n int, err error) {
	_, event, err := field(msg)
	if err != nil {
		return 0, 0, err
	}
	kind, body, err := field(event)
	if err != nil || kind != 2 {
		return kind, 0, err
	}
	_, data, err := field(body)
	return kind, len(data), err
}

// field reads the first length-delimited field of a message.
func field(b []byte) (num int, value []byte, err error) {
	tag, i := binary.Uvarint(b)
	if i <= 0 || tag&7 != fieldLen {
		return 0, nil, errWire
	}
	n, j := binary.Uvarint(b[i:])
	if j <= 0 || n > uint64(len(b)-i-j) {
		return 0, nil, errWire
	}
	return int(tag >> 3), b[i+j : i+j+int(n)], nil
}

func appendField(dst []byte, num int, value []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(num<<3|fieldLen))
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...)
}
