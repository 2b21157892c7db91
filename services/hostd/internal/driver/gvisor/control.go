//go:build linux

package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// control sends requests to a sandbox's own process. It is safe for concurrent use.
type control struct {
	r    *runsc
	idle chan net.Conn // holds an idle connection for reuse
}

// newControl returns a control that connects on demand and keeps a connection for the
// next request: for a new one two more of gVisor's threads must wake up, which on a busy
// machine is most of the time that a stop takes. endsAtOnce exists for that.
func newControl(r *runsc) *control { return &control{r, make(chan net.Conn, 1)} }

// endsAtOnce makes a sandbox end without waiting for clients that keep a connection.
const endsAtOnce = "--control-rpc-stop-timeout=0"

// maxControl is the maximum size of a response, in bytes.
const maxControl = 64 << 20

// call calls a method of the sandbox's own process and passes it files, too. After an
// error that is not the method's own, the method may or may not have run.
func (c *control) call(ctx context.Context, method string, arg, result any, files ...*os.File) error {
	question, err := json.Marshal(map[string]any{"method": method, "arg": arg})
	if err != nil {
		return err
	}
	conn, err := c.take(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	got, err := roundTrip(conn, question, files)
	if inTime := stop(); inTime && err == nil {
		c.keep(conn)
	} else {
		conn.Close()
	}
	if err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("%s: %w", method, err))
	}
	if !got.Success {
		return fmt.Errorf("%s: %.1000s", method, got.Err)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(got.Result, result)
}

// answer is the response.
type answer struct {
	Success bool            `json:"success"`
	Err     string          `json:"err"`
	Result  json.RawMessage `json:"result"`
}

func roundTrip(conn net.Conn, question []byte, files []*os.File) (a answer, err error) {
	if len(files) == 0 {
		_, err = conn.Write(question)
	} else {
		err = sendFiles(conn, question, files)
	}
	if err != nil {
		return a, err
	}
	return a, json.NewDecoder(io.LimitReader(conn, maxControl)).Decode(&a)
}

// sendFiles writes a request with files.
func sendFiles(conn net.Conn, question []byte, files []*os.File) error {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return errors.ErrUnsupported
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	_, _, err := socket.WriteMsgUnix(question, unix.UnixRights(fds...), nil)
	return err
}

// take returns a connection that no other caller uses.
func (c *control) take(ctx context.Context) (net.Conn, error) {
	select {
	case conn := <-c.idle:
		return conn, nil
	default:
		return c.r.dialControl(ctx)
	}
}

func (c *control) keep(conn net.Conn) {
	select {
	case c.idle <- conn:
	default:
		conn.Close()
	}
}

// close closes the idle connection.
func (c *control) close() {
	select {
	case conn := <-c.idle:
		conn.Close()
	default:
	}
}

// dialControl connects to the sandbox's own process, wherever its socket is.
func (r *runsc) dialControl(ctx context.Context) (conn net.Conn, err error) {
	for _, dir := range append([]string{r.in(stateDir)}, otherSockets()...) {
		conn, err = live.DialAt(ctx, dir, r.socket())
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return conn, err
}

// socket returns the name of the socket, otherSockets the directories where it may be if the
// path of runsc's own directory is too long for an address.
func (r *runsc) socket() string { return "runsc-" + string(r.id) + ".sock" }

func otherSockets() []string { return []string{"/var/run", "/run", "/tmp"} }
