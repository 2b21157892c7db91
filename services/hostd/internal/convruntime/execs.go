package convruntime

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/events/bootstrap"
)

// Limits of commands.
const (
	maxWaiting    = 128 // commands without an id that wait for the one before
	maxConcurrent = 64  // running commands with an id
)

// execs runs commands.
type execs struct {
	dir     directory
	environ []string // of the runtime itself
	out     *output

	onDesktop func(environ []string) []string // adds the desktop, if there is one, to an environment

	queue   chan command  // commands without an id
	slots   chan struct{} // one value per running command with an id
	all     sync.WaitGroup
	running atomic.Int64
}

func newExecs(dir directory, environ []string, out *output, onDesktop func([]string) []string) *execs {
	e := &execs{dir: dir, environ: environ, out: out, onDesktop: onDesktop, queue: make(chan command, maxWaiting), slots: make(chan struct{}, maxConcurrent)}
	e.all.Go(func() {
		for c := range e.queue {
			e.run(c)
		}
	})
	return e
}

// wait waits for all commands. None is started afterwards.
func (e *execs) wait() {
	close(e.queue)
	e.all.Wait()
}

// count returns the number of running commands.
func (e *execs) count() int { return int(e.running.Load()) }

// start runs a command, later or concurrently. It does not wait: frames of gateways must not wait
// for clients' commands.
func (e *execs) start(c command) {
	if c.ID == nil {
		select {
		case e.queue <- c:
		default:
			e.refuse(c, fmt.Sprintf("more than %d commands wait", maxWaiting))
		}
		return
	}
	select {
	case e.slots <- struct{}{}:
		e.all.Go(func() {
			defer func() { <-e.slots }()
			e.run(c)
		})
	default:
		e.refuse(c, fmt.Sprintf("more than %d commands run", maxConcurrent))
	}
}

// notRun is the exit code of a command that could not be run, as shells have it.
const notRun = 126

// refuse answers a command that does not run.
func (e *execs) refuse(c command, why string) {
	e.out.stdout(c.ID, "e2a-runtime: "+why+"\n")
	e.out.exit(c.ID, notRun)
}

// run runs a command and sends what it prints and how it ended.
func (e *execs) run(c command) {
	e.running.Add(1)
	defer e.running.Add(-1)
	values, err := e.dir.read(bootstrap.EnvFile)
	if err != nil {
		e.refuse(c, "read the configuration: "+err.Error())
		return
	}
	code, err := runShell(*c.Command, e.onDesktop(withValues(e.environ, values)), func(data string) { e.out.stdout(c.ID, data) })
	if err != nil {
		e.refuse(c, err.Error())
		return
	}
	e.out.exit(c.ID, code)
}

// largeEnvironment is the size of the values from which on the usual limits may not suffice.
const largeEnvironment = 1 << 20

// withValues returns an environment with values in place of variables of the same names.
func withValues(environ []string, values map[string]string) []string {
	env := make([]string, 0, len(environ)+len(values))
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if _, ok := values[name]; !ok {
			env = append(env, v)
		}
	}
	size := 0
	for name, value := range values {
		env = append(env, name+"="+value)
		size += len(env[len(env)-1])
	}
	if size > largeEnvironment {
		allowLargeEnvironments()
	}
	return env
}
