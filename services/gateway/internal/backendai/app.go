package backendai

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/gateway/internal/backendai/session"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
)

const (
	// serviceTimeout limits the time in which a service begins to listen.
	serviceTimeout = 30 * time.Second
	firstDial      = 20 * time.Millisecond // between two attempts to connect to a service that starts
	maxDial        = 500 * time.Millisecond
	// overTimeout limits the time to ask for the state of a session whose tunnel has failed.
	overTimeout = 5 * time.Second
)

// app is a service that a request names.
type app struct {
	h       *Handler
	p       core.Principal
	service template.Service

	mu sync.Mutex
	st sandbox.State // of the session
}

// touch keeps the session from ending for being idle.
func (a *app) touch(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.h.touch(ctx, a.p, &a.st)
}

// over reports whether the session has ended or is ending.
func (a *app) over() bool {
	ctx, cancel := context.WithTimeout(context.Background(), overTimeout) // that of the connection may have ended
	defer cancel()
	st, err := a.h.find(ctx, a.p, session.UUID(a.st.ID))
	return kind.Is(err, kind.NotFound) || err == nil && st.Phase == sandbox.PhaseStopping
}

// open connects to the service, which it starts if nothing listens on its port.
func (a *app) open(ctx context.Context) (*mux.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	var started process.ID
	for n := 0; ; n++ {
		s, err := a.h.cfg.Ports.DialPort(ctx, a.st.ID, a.service.Port)
		if !kind.Is(err, kind.Precondition) || a.service.Start == "" {
			return s, err
		}
		id, failed := a.run(ctx, started)
		if failed != nil {
			return nil, failed
		}
		if started = id; !waiting.Sleep(ctx, waiting.Delay(n, firstDial, maxDial)) {
			return nil, err
		}
	}
}

// tag is the tag of the service's processes, of which one is active at most.
func (a *app) tag() string { return "service:" + a.service.Name }

// processes returns the processes of the service, oldest first.
func (a *app) processes(ctx context.Context, keep func(*process.Summary) bool) ([]process.Summary, error) {
	return a.h.cfg.Operations.Processes(ctx, a.p, a.st.ID, func(s *process.Summary) bool {
		return s.Spec.Tag != nil && *s.Spec.Tag == a.tag() && keep(s)
	})
}

// run returns the process of the service, which it starts if there is none. Any number of gateways
// start one. It returns Precondition if started is the last one and has ended.
func (a *app) run(ctx context.Context, started process.ID) (process.ID, error) {
	all, err := a.processes(ctx, func(*process.Summary) bool { return true })
	if err != nil {
		return "", err
	}
	if n := len(all); n > 0 {
		switch last := &all[n-1]; {
		case last.Active():
			return last.ID, nil
		case last.ID == started:
			return "", kind.New(kind.Precondition, "start service", string(started), "the service has ended")
		}
	}
	spec := procs.Shell(a.service.Start)
	tag := a.tag()
	spec.Tag, spec.User = &tag, session.User(&a.service)
	id, src, err := a.h.cfg.Operations.Start(ctx, a.p, a.st.ID, spec, procs.StartOptions{IdempotencyKey: fmt.Sprintf("%s %d", tag, len(all))})
	if err != nil {
		return "", err
	}
	src.Close()
	return id, nil
}
