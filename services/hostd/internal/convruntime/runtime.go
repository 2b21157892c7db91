package convruntime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/frame"
)

// run serves frames until stdin ends, and then waits for the commands that still run.
func run(dir directory, environ []string, stdin io.Reader, stdout, stderr io.Writer) error {
	out := &output{w: stdout}
	rt := &runtime{dir: dir, out: out, log: stderr}
	rt.desk = newDesk(dir, environ, out, rt.report)
	rt.turns = newTurns(dir, environ, out, rt.desk.Desktop, stderr)
	rt.execs = newExecs(dir, environ, out, rt.desk.Environ)
	port, stop := rt.door.open(bootstrap.Port, rt.execs.count)
	defer stop()
	out.control(frame.Message{Ready: &frame.Ready{Port: port}})
	err := rt.read(stdin)
	rt.execs.wait()
	rt.turns.wait()
	rt.desk.close()
	return errors.Join(err, out.err)
}

// runtime serves the frames of one standard input.
type runtime struct {
	dir   directory
	out   *output
	log   io.Writer
	execs *execs
	turns *turns
	desk  *desk
	door  door
	cua   bool // whether the current client may use the desktop and receive binary frames

	repeat bool // whether messages of the current client are repeated
}

const chunk = 64 << 10

// read handles frames until the input ends.
func (rt *runtime) read(stdin io.Reader) error {
	// A gateway's frames are the client's, or slightly larger.
	d := frame.NewDecoder(frame.MaxFromClient + 4<<10)
	buf := make([]byte, chunk)
	for {
		n, err := stdin.Read(buf)
		for f, ferr := range d.Feed(buf[:n]) {
			if ferr != nil {
				rt.report(ferr)
				continue
			}
			rt.handle(&f)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (rt *runtime) report(err error) { fmt.Fprintf(rt.log, "%s: %v\n", bootstrap.Arg, err) }

func (rt *runtime) handle(f *frame.Frame) {
	switch f.Kind {
	case frame.Text:
		if rt.repeat {
			text := string(f.Payload)
			rt.out.control(frame.Message{Received: &text})
		}
		c, ok := parseCommand(f.Payload)
		if ok && rt.desk.handle(c, f.Payload, rt.cua) {
			return
		}
		if ok && c.complete() {
			rt.execs.start(c)
			return
		}
		if !rt.turns.take(f.Payload) {
			rt.out.send(frame.Text, f.Payload)
		}
	case frame.Binary:
		if rt.cua {
			rt.out.send(frame.Binary, f.Payload)
		}
	case frame.Control:
		m, err := frame.ParseMessage(f.Payload)
		if err != nil {
			rt.report(err)
			return
		}
		rt.control(m)
	}
}

// control handles a message of a gateway.
func (rt *runtime) control(m frame.Message) {
	var err error
	switch {
	case m.Attach != nil:
		rt.cua, rt.repeat = m.Attach.CUA, m.Attach.Repeat
		if rt.cua {
			rt.desk.Start()
		}
		rt.door.admit(m.Attach.ID, m.Attach.Token)
		err = rt.dir.write(bootstrap.UpgradeFile, m.Attach)
		rt.out.control(frame.Message{Attached: m.Attach.ID})
		rt.turns.attached()
	case m.Detach != nil && rt.door.dismiss(m.Detach.ID):
		rt.cua = false
		err = rt.dir.remove(bootstrap.UpgradeFile)
	}
	if err != nil {
		rt.report(err)
	}
}

// command is a client's request to run a command.
type command struct {
	Type    string          `json:"type"`
	ID      json.RawMessage `json:"id"`
	Command *string         `json:"command"`
}

const maxID = 256

// complete reports whether a command can run. A frame that is no complete request is not one at all.
func (c *command) complete() bool {
	return (c.Type == "exec" || c.Type == shellTool) && c.Command != nil
}

// parseCommand decodes a text frame that may be a command or a call of a tool.
func parseCommand(text []byte) (command, bool) {
	var c command
	if json.Unmarshal(text, &c) != nil || len(c.ID) > maxID {
		return c, false
	}
	if string(c.ID) == "null" {
		c.ID = nil
	}
	if len(c.ID) > 0 && (c.ID[0] == '{' || c.ID[0] == '[') { // a string, a number or a flag
		return c, false
	}
	return c, true
}
