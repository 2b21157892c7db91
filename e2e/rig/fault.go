package rig

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// TryDial is Dial for what may fail, as gateways do that are killed. The caller
// closes what it gives.
func (a *API) TryDial(req Request) (*Raw, error) { return a.dial(req) }

// Revive begins another life of a program that is dead.
func (s *Split) Revive(name string) error {
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

// Crash kills a program and begins its next life at once, and tells how long
// the call took.
func (s *Split) Crash(name string) (time.Duration, error) {
	began := time.Now()
	s.Program(name).Kill9()
	err := s.Revive(name)
	return time.Since(began), err
}

// Names are all programs, in the order in which they were begun.
func (s *Split) Names() []string {
	var out []string
	for _, p := range s.programs {
		out = append(out, p.Name)
	}
	return out
}

// ReviveAll begins another life of whatever is dead, NATS first, and returns
// when the topology works again.
func (s *Split) ReviveAll() error {
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

// Try is Call that goes from gateway to gateway, as a client does whose call
// failed, until one answers with a status that is no "try again"; give up after
// the time-out.
func Try(apis []*API, timeout time.Duration, method, path string, body any, headers ...string) (Answer, error) {
	var ans Answer
	var err error
	turn := 0
	ok := Poll(timeout, func() bool {
		ans, err = apis[turn%len(apis)].Call(method, path, body, headers...)
		turn++
		return err == nil && !Again(ans.Status)
	})
	if !ok && err == nil {
		err = fmt.Errorf("%s %s: %v after %v", method, path, ans, timeout)
	}
	return ans, err
}

// Again reports whether a status says that the same request may work later. 502
// does not: here it says that the sandbox is over.
func Again(status int) bool {
	return status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// Settled waits until so many hosts take sandboxes: a host lives before it has
// looked after what its life before left, and only then takes new ones.
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
		return fmt.Errorf("%d of %d hosts take sandboxes after %v", n, hosts, topologyTimeout)
	}
	return nil
}

// HostStates are the states of all hosts, as the first gateway that answers
// tells them: alive, starting, draining, silent or gone.
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
