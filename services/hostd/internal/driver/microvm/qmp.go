//go:build linux

package microvm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

const (
	qmpFile = "qmp.sock"
	qmpTime = 10 * time.Second // per response
	maxLine = 1 << 20          // bytes of a response
)

// qmp is a connection to QEMU's monitor. QEMU accepts one at a time; others wait.
type qmp struct {
	conn net.Conn
	in   *bufio.Scanner
	stop func() bool
}

// openQMP opens a connection that ends with ctx.
func openQMP(ctx context.Context, dir string) (*qmp, error) {
	conn, err := live.DialAt(ctx, dir, qmpFile)
	if err != nil {
		return nil, err
	}
	q := &qmp{conn: conn, in: bufio.NewScanner(conn)}
	q.in.Buffer(nil, maxLine)
	q.stop = context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	if !q.in.Scan() {
		err = errors.Join(q.in.Err(), errors.New("the monitor sent no greeting"))
	} else {
		_, err = q.do("qmp_capabilities", nil)
	}
	if err != nil {
		q.close()
		return nil, errors.Join(ctx.Err(), err)
	}
	return q, nil
}

func (q *qmp) close() {
	q.stop()
	q.conn.Close()
}

type answer struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
}

// do executes a command and waits for its result.
func (q *qmp) do(command string, args any) (json.RawMessage, error) {
	return q.doWith(command, args, nil)
}

// doWith is do with a file that is passed to QEMU.
func (q *qmp) doWith(command string, args any, file *os.File) (json.RawMessage, error) {
	b, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, args})
	if err != nil {
		return nil, err
	}
	if err := q.send(append(b, '\n'), file); err != nil {
		return nil, err
	}
	for q.in.Scan() {
		var a answer
		if err := json.Unmarshal(q.in.Bytes(), &a); err != nil {
			return nil, fmt.Errorf("%s: %w", command, err)
		}
		switch {
		case a.Error != nil:
			return nil, fmt.Errorf("%s: %s", command, a.Error.Desc)
		case a.Return != nil:
			return a.Return, nil
		}
		// An event: events are not used.
	}
	return nil, fmt.Errorf("%s: %w", command, errors.Join(q.in.Err(), errors.New("the monitor closed the connection")))
}

// awaitShutdown waits until the guest has switched itself off.
func (q *qmp) awaitShutdown() error {
	for q.in.Scan() {
		var event struct{ Event string }
		if err := json.Unmarshal(q.in.Bytes(), &event); err != nil {
			return err
		}
		if event.Event == "SHUTDOWN" {
			return nil
		}
	}
	return errors.Join(q.in.Err(), errors.New("QEMU ended before its guest did"))
}

func (q *qmp) send(b []byte, file *os.File) error {
	c, ok := q.conn.(*net.UnixConn)
	if file == nil || !ok {
		_, err := q.conn.Write(b)
		return err
	}
	_, _, err := c.WriteMsgUnix(b, unix.UnixRights(int(file.Fd())), nil)
	return err
}

// monitor executes one command on a connection of its own.
func monitor(ctx context.Context, dir, command string) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, qmpTime)
	defer cancel()
	q, err := openQMP(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer q.close()
	return q.do(command, nil)
}

// freezer stops a guest's CPUs; it implements live.Freezer.
type freezer struct {
	dir  string
	gone <-chan struct{} // closed when the machine has ended
}

func (f freezer) Freeze(ctx context.Context) error {
	_, err := f.query(ctx, "stop")
	return err
}

func (f freezer) Thaw(ctx context.Context) error {
	_, err := f.query(ctx, "cont")
	return err
}

// query executes a command. After an error it waits for the machine to end, if it is
// ending: only then is the cause of the error known.
func (f freezer) query(ctx context.Context, command string) (json.RawMessage, error) {
	raw, err := monitor(ctx, f.dir, command)
	if err != nil && ctx.Err() == nil {
		select {
		case <-f.gone:
		case <-time.After(time.Second):
		}
	}
	return raw, err
}

func (f freezer) Frozen() (bool, error) {
	raw, err := f.query(context.Background(), "query-status")
	if err != nil {
		return false, err
	}
	var status struct{ Running bool }
	err = json.Unmarshal(raw, &status)
	return !status.Running, err
}

// status returns QEMU's name of the guest's state.
func (q *qmp) status() (string, error) {
	raw, err := q.do("query-status", nil)
	if err != nil {
		return "", err
	}
	var s struct {
		Status string `json:"status"`
	}
	err = json.Unmarshal(raw, &s)
	return s.Status, err
}

// withMemory sets whether saving and loading include memory that is a file.
func (q *qmp) withMemory(yes bool) error {
	type object map[string]any
	_, err := q.do("migrate-set-capabilities", object{"capabilities": []object{{"capability": "x-ignore-shared", "state": !yes}}})
	return err
}

// wake loads the state of a machine, with the memory or without, and resumes the guest,
// unless it was saved paused.
func wake(ctx context.Context, dir string, memory bool) error {
	q, err := openQMP(ctx, dir)
	if err != nil {
		return err
	}
	defer q.close()
	if err := q.withMemory(memory); err != nil {
		return err
	}
	if _, err := q.do("migrate-incoming", map[string]any{"uri": fmt.Sprintf("fd:%d", memoryFd)}); err != nil {
		return err
	}
	for {
		switch s, err := q.status(); {
		case err != nil:
			return err
		case s != "inmigrate":
			_, err := q.do("cont", nil)
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// pause waits for a moment.
func pause(ctx context.Context) error {
	t := time.NewTimer(5 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// migrate writes the state of a stopped guest to a file, with its memory or
// without.
func (q *qmp) migrate(ctx context.Context, to *os.File, memory bool) error {
	type args map[string]any
	if err := q.withMemory(memory); err != nil {
		return err
	}
	if _, err := q.do("migrate-set-parameters", args{"max-bandwidth": int64(1) << 40}); err != nil {
		return err
	}
	if _, err := q.doWith("getfd", args{"fdname": "snapshot"}, to); err != nil {
		return err
	}
	if _, err := q.do("migrate", args{"uri": "fd:snapshot"}); err != nil {
		return err
	}
	for {
		raw, err := q.do("query-migrate", nil)
		if err != nil {
			return err
		}
		var m struct {
			Status string `json:"status"`
			Desc   string `json:"error-desc"`
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			return err
		}
		switch m.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return fmt.Errorf("save memory: %s", m.Desc)
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}
