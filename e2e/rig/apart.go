package rig

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// apart gives each NATS server a network namespace of its own, so that a test can drop
// packets. All other programs run in the test's network and reach the servers over a bridge.
type apart struct {
	bridge string
	nodes  []node
}

// node is the network of one NATS server.
type node struct{ name, netns, ip string }

// apartToken is the token that NATS servers off loopback require.
const apartToken = "only-for-e2e-tests-of-a-network"

// nowhere is a hardware address without an interface: packets to it are lost.
const nowhere = "02:de:ad:00:00:01"

// CanApart returns why this machine cannot give servers networks of their own, or nil.
func CanApart() error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}
	for _, tool := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			return err
		}
	}
	return nil
}

// newApart creates n networks.
func newApart(n int) (*apart, error) {
	id := fmt.Sprintf("mre%05x", rand.IntN(1<<20))
	subnet := rand.IntN(1 << 16)
	ip := func(i int) string { return fmt.Sprintf("10.%d.%d.%d", 64+subnet>>8&63, subnet&255, i) }
	a := &apart{bridge: id}
	err := ipTool(
		"link add "+id+" type bridge",
		"addr add "+ip(254)+"/24 dev "+id,
		"link set "+id+" up",
	)
	for i := 1; i <= n && err == nil; i++ {
		x := node{name: fmt.Sprintf("nats-%d", i), netns: fmt.Sprintf("%s-%d", id, i), ip: ip(i)}
		a.nodes = append(a.nodes, x)
		err = ipTool(
			"netns add "+x.netns,
			"link add "+id+"v"+fmt.Sprint(i)+" type veth peer name eth0 netns "+x.netns,
			"link set "+id+"v"+fmt.Sprint(i)+" master "+id+" up",
			"-n "+x.netns+" addr add "+x.ip+"/24 dev eth0",
			"-n "+x.netns+" link set eth0 up",
			"-n "+x.netns+" link set lo up",
		)
	}
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// inside returns the arguments of nsenter that run bin in a server's network.
func (a *apart) inside(i int, bin string) []string {
	return []string{"--net=" + filepath.Join("/run/netns", a.nodes[i].netns), bin}
}

// close removes the networks.
func (a *apart) close() error {
	var errs []error
	for _, x := range a.nodes {
		errs = append(errs, ipTool("netns del "+x.netns))
	}
	return errors.Join(append(errs, ipTool("link del "+a.bridge))...)
}

// Isolate drops all packets between a NATS server and the other NATS servers, and with
// clients also those between it and all other programs. No peer gets a reset. Join undoes it.
func (s *Split) Isolate(name string, clients bool) error {
	return s.each(name, clients, func(from, dev, to string) string {
		return from + "neigh replace " + to + " lladdr " + nowhere + " dev " + dev + " nud permanent"
	})
}

// Join undoes Isolate.
func (s *Split) Join(name string, clients bool) error {
	return s.each(name, clients, func(from, dev, to string) string { return from + "neigh del " + to + " dev " + dev })
}

// each calls ip for both directions between a server and the others.
func (s *Split) each(name string, clients bool, do func(from, dev, to string) string) error {
	var cmds []string
	for _, x := range s.apart.nodes {
		if x.name != name {
			continue
		}
		for _, y := range s.apart.nodes {
			if y.name != name {
				cmds = append(cmds, do("-n "+x.netns+" ", "eth0", y.ip), do("-n "+y.netns+" ", "eth0", x.ip))
			}
		}
		if clients {
			cmds = append(cmds, do("", s.apart.bridge, x.ip))
		}
	}
	return ipTool(cmds...)
}

// ServerOf returns the NATS server that a program is connected to; empty without one.
func (s *Split) ServerOf(program string) (string, error) {
	out, err := exec.Command("ss", "-Htnp", "state", "established").Output()
	if err != nil {
		return "", fmt.Errorf("ss: %w", err)
	}
	pid := fmt.Sprintf("pid=%d,", s.Program(program).PID())
	for line := range strings.Lines(string(out)) {
		for _, x := range s.apart.nodes {
			if strings.Contains(line, pid) && strings.Contains(line, " "+x.ip+":") {
				return x.name, nil
			}
		}
	}
	return "", nil
}

// ipTool runs ip with each of the arguments.
func ipTool(all ...string) error {
	for _, args := range all {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	return nil
}
