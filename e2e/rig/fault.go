package rig

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// TryDial is Dial for a gateway that may be down. The caller closes the stream.
func (a *API) TryDial(req Request) (*Raw, error) { return a.dial(req) }

// RestartProgram restarts a program that has ended.
func (s *Split) RestartProgram(name string) error {
	p := s.Program(name)
	if err := p.Restart(); err != nil {
		return err
	}
	for i, a := range s.APIs {
		if name == fmt.Sprintf("gateway-%d", i+1) {
			return a.AwaitReady(topologyTimeout, p)
		}
	}
	return nil
}

// Crash kills a program and restarts it at once, and returns how long that took.
func (s *Split) Crash(name string) (time.Duration, error) {
	began := time.Now()
	s.Program(name).Kill9()
	err := s.RestartProgram(name)
	return time.Since(began), err
}

// Names returns the names of all programs in the order of their start.
func (s *Split) Names() []string {
	var out []string
	for _, p := range s.programs {
		out = append(out, p.Name)
	}
	return out
}

// RestartAll restarts all programs that have ended, NATS first, and returns when the
// topology works again.
func (s *Split) RestartAll() error {
	var errs []error
	for _, p := range s.programs {
		p.Cont()
		if !p.Running() {
			errs = append(errs, p.Restart())
		}
	}
	for i, a := range s.APIs {
		errs = append(errs, a.AwaitReady(topologyTimeout, s.Program(fmt.Sprintf("gateway-%d", i+1))))
	}
	return errors.Join(errs...)
}

// Try is Call with retries: it tries one gateway after another until one responds with a
// status that is not retryable, or the timeout ends.
func Try(apis []*API, timeout time.Duration, method, path string, body any, headers ...string) (Answer, error) {
	var ans Answer
	var err error
	turn := 0
	ok := Poll(timeout, func() bool {
		ans, err = apis[turn%len(apis)].Call(method, path, body, headers...)
		turn++
		return err == nil && !Retryable(ans.Status)
	})
	if !ok && err == nil {
		err = fmt.Errorf("%s %s: %v after %v", method, path, ans, timeout)
	}
	return ans, err
}

// Retryable reports whether a status is retryable. 502 is not: it means that the sandbox has
// ended.
func Retryable(status int) bool {
	return status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// Settled waits until the given number of hosts accept sandboxes: after a restart a host is
// alive before it has recovered its sandboxes, and accepts new ones only after that.
func (s *Split) Settled(hosts int) error {
	n := 0
	ok := Poll(topologyTimeout, func() bool {
		n = 0
		for _, state := range s.HostStates() {
			if state == "alive" {
				n++
			}
		}
		return n >= hosts
	})
	if !ok {
		return fmt.Errorf("%d of %d hosts accept sandboxes after %v", n, hosts, topologyTimeout)
	}
	return nil
}

// HostStates returns the states of all hosts from the first gateway that responds: alive,
// starting, draining, silent or gone.
func (s *Split) HostStates() map[string]string {
	for _, a := range s.APIs {
		var b struct {
			Hosts []struct {
				Name  string `json:"name"`
				State string `json:"state"`
			} `json:"hosts"`
		}
		ans, err := a.Call(http.MethodGet, "/v1/hosts", nil)
		if err != nil || json.Unmarshal(ans.Body, &b) != nil {
			continue
		}
		out := map[string]string{}
		for _, h := range b.Hosts {
			out[h.Name] = h.State
		}
		return out
	}
	return nil
}
