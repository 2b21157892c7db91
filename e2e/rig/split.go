package rig

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Topology is the number of programs per role and their options. Zero means one.
type Topology struct {
	NATS        int  // 1 or 3
	Apart       bool // give each NATS server its own network: see Split.Isolate
	Gateways    int
	Schedulers  int
	Reapers     int
	Hosts       int
	Binary      string                  // default the binary under test
	Driver      string                  // default Driver
	GatewayArgs []string                // additional arguments of each gateway
	HostArgs    []string                // additional arguments of each hostd
	Env         []string                // additional environment of gateways and reapers
	AllEnv      []string                // additional environment of every program
	Durability  string                  // default "process": tests kill processes, not machines
	Before      func(nats string) error // called with the URLs of the NATS servers before the services start
}

// Split is a split topology of separate processes: nats-1..., gateway-1..., scheduler-1...,
// reaper-1..., host-1...
type Split struct {
	*Nest
	APIs []*API // one per gateway
	URL  string // URLs of all NATS servers

	servers int    // number of NATS servers
	apart   *apart // nil: all servers are on loopback
}

// SplitKey is the API key of every Split.
const SplitKey = "e2b_5b117000000000000000000000000000000000e2"

// NewSplit starts a split topology until the end of the test, and returns when every
// gateway is ready and every host is alive.
func NewSplit(t testing.TB, top Topology) *Split {
	t.Helper()
	if top.Driver == "" {
		top.Driver = Driver(t)
	}
	for _, n := range []*int{&top.NATS, &top.Gateways, &top.Schedulers, &top.Reapers, &top.Hosts} {
		*n = max(*n, 1)
	}
	if top.Durability == "" {
		top.Durability = "process"
	}
	nest, err := newNest()
	if err != nil {
		t.Fatal(err)
	}
	nest.env, nest.exe = top.AllEnv, top.Binary
	s := &Split{Nest: nest}
	s.servers = top.NATS
	s.closeAfter(t)
	s.last = s.killSandboxes
	if top.Apart {
		if s.apart, err = newApart(top.NATS); err != nil {
			t.Fatal(err)
		}
		s.token = apartToken
		s.closers = append(s.closers, s.apart.close)
	}
	if err := s.begin(&top); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Split) begin(top *Topology) error {
	if err := s.nats(top); err != nil {
		return err
	}
	if top.Before != nil {
		if err := top.Before(s.URL); err != nil {
			return err
		}
	}
	to := []string{"--nats", s.URL, "--replicas", strconv.Itoa(top.NATS), "--log-level", "info"}
	for i := range top.Gateways {
		addr, err := s.freeAddr()
		if err != nil {
			return err
		}
		api := &API{URL: "http://" + addr, Key: SplitKey, made: &s.made}
		err = s.add(fmt.Sprintf("gateway-%d", i+1), append([]string{"MILLRACE_API_KEY=" + SplitKey}, top.Env...),
			slices.Concat([]string{"gateway", "--listen", addr}, to, top.GatewayArgs)...)
		if err != nil {
			return err
		}
		s.APIs = append(s.APIs, api)
	}
	for _, r := range []struct {
		role string
		n    int
	}{{"scheduler", top.Schedulers}, {"reaper", top.Reapers}} {
		for i := range r.n {
			if err := s.add(fmt.Sprintf("%s-%d", r.role, i+1), top.Env, append([]string{r.role}, to...)...); err != nil {
				return err
			}
		}
	}
	for i := range top.Hosts {
		name := fmt.Sprintf("host-%d", i+1)
		args := append([]string{"hostd", "--name", name, "--data", filepath.Join(s.Dir, name), "--driver", top.Driver, "--warm", "2"}, to...)
		if err := s.add(name, nil, append(args, top.HostArgs...)...); err != nil {
			return err
		}
	}
	return s.await(top)
}

// nats starts the NATS servers as a cluster.
func (s *Split) nats(top *Topology) error {
	var clients, routes []string
	for i := range top.NATS {
		c, r, err := s.natsAddrs(i)
		if err != nil {
			return err
		}
		clients, routes = append(clients, c), append(routes, "nats://"+r)
	}
	for i := range top.NATS {
		name := fmt.Sprintf("nats-%d", i+1)
		args := []string{"nats", "--listen", clients[i], "--name", name, "--data", filepath.Join(s.Dir, name),
			"--durability", top.Durability, "--log-level", "info"}
		if top.NATS > 1 {
			args = append(args, "--cluster", "millrace", "--cluster-listen", strings.TrimPrefix(routes[i], "nats://"),
				"--routes", strings.Join(routes, ","))
		}
		if err := s.addNATS(i, name, args); err != nil {
			return err
		}
	}
	s.URL = "nats://" + strings.Join(clients, ",nats://")
	return nil
}

// Servers returns the number of NATS servers.
func (s *Split) Servers() int { return s.servers }

// natsAddrs returns the addresses of a server for clients and for the other servers.
func (s *Split) natsAddrs(i int) (client, route string, err error) {
	if s.apart != nil {
		return s.apart.nodes[i].ip + ":4222", s.apart.nodes[i].ip + ":6222", nil
	}
	if client, err = s.freeAddr(); err != nil {
		return "", "", err
	}
	route, err = s.freeAddr()
	return client, route, err
}

func (s *Split) addNATS(i int, name string, args []string) error {
	if s.apart == nil {
		return s.add(name, nil, args...)
	}
	bin, err := s.binary()
	if err != nil {
		return err
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	_, err = s.addOf(nsenter, name, nil, append(s.apart.inside(i, bin), args...)...)
	return err
}

const topologyTimeout = 60 * time.Second

func (s *Split) await(top *Topology) error {
	for i, a := range s.APIs {
		if err := a.AwaitReady(topologyTimeout, s.Program(fmt.Sprintf("gateway-%d", i+1))); err != nil {
			return err
		}
	}
	var alive int
	if !Poll(topologyTimeout, func() bool { alive = s.APIs[0].AliveHosts(); return alive >= top.Hosts }) {
		return fmt.Errorf("%d of %d hosts are alive after %v", alive, top.Hosts, topologyTimeout)
	}
	return nil
}

// killSandboxes removes all sandboxes by the first gateway that responds.
func (s *Split) killSandboxes() {
	for _, p := range s.programs {
		p.Cont()
	}
	for _, a := range s.APIs {
		if a.KillAll() {
			return
		}
	}
}

// HostOf returns the host of a sandbox.
func (s *Split) HostOf(t testing.TB, a *API, sandbox string) string {
	t.Helper()
	run := a.StartStream(t, sandbox, "true").All(t)
	var p struct {
		Host string `json:"host"`
	}
	a.Want(t, 200, "GET", "/v1/processes/"+run.Process, nil).Decode(t, &p)
	return p.Host
}
