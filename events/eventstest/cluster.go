package eventstest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/natsd"
)

// Cluster is three servers on loopback, which a test can stop and restart. Its methods
// belong to one goroutine.
type Cluster struct {
	t       testing.TB
	cfgs    []natsd.Config
	servers []*natsd.Server
}

const (
	clusterSize  = 3
	ClusterToken = "only-for-tests" // of all servers
)

// StartCluster runs three servers until the test ends.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	return StartClusterOf(t, 0)
}

// StartClusterOf is StartCluster with maxStore bytes for the streams of each server; 0: the
// disk's capacity.
func StartClusterOf(t testing.TB, maxStore int64) *Cluster {
	t.Helper()
	c := &Cluster{t: t, servers: make([]*natsd.Server, clusterSize)}
	ports := FreePorts(t, 2*clusterSize)
	var routes []string
	for i := range clusterSize {
		routes = append(routes, "nats://"+ports[clusterSize+i])
	}
	for i := range clusterSize {
		c.cfgs = append(c.cfgs, natsd.Config{
			Dir: t.TempDir(), Name: fmt.Sprintf("n%d", i), Listen: ports[i],
			Cluster: "test", ClusterOn: ports[clusterSize+i], Routes: routes, Token: ClusterToken, MaxStore: maxStore,
		})
		c.Resume(i)
	}
	t.Cleanup(func() {
		for i := range c.servers {
			c.Stop(i)
		}
	})
	return c
}

// FreePorts returns n free loopback addresses, for servers that a test restarts. The kernel
// gives no such port to a client or to a server without a fixed one, so that it is still free
// after a restart: it takes those from above (net.ipv4.ip_local_port_range).
func FreePorts(t testing.TB, n int) []string {
	t.Helper()
	var out []string
	for tries := 0; len(out) < n; tries++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.N(20_000)))
		if err != nil && tries < 1000 {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out
}

// Stop stops server i.
func (c *Cluster) Stop(i int) {
	if c.servers[i] != nil {
		c.servers[i].Stop()
		c.servers[i] = nil
	}
}

// Resume restarts server i on its files.
func (c *Cluster) Resume(i int) {
	c.t.Helper()
	srv, err := natsd.Start(c.cfgs[i])
	if err != nil {
		c.t.Fatalf("start %s: %v", c.cfgs[i].Name, err)
	}
	c.servers[i] = srv
}

// Dir returns the directory of server i's files, and Name its name.
func (c *Cluster) Dir(i int) string  { return c.cfgs[i].Dir }
func (c *Cluster) Name(i int) string { return c.cfgs[i].Name }

// Leader returns the server that leads a stream. It waits for one, because a loaded machine can
// elect another at any time; -1: there is none for a minute.
func (c *Cluster) Leader(stream string) int {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		for i, s := range c.servers {
			if s != nil && s.Leads(stream) {
				return i
			}
		}
	}
	return -1
}

// URL returns the addresses of all servers.
func (c *Cluster) URL() string {
	var urls []string
	for _, cfg := range c.cfgs {
		urls = append(urls, "nats://"+cfg.Listen)
	}
	return strings.Join(urls, ",")
}

// Open returns a log with three replicas on the cluster, closed when the test ends.
func (c *Cluster) Open() *events.Log {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	log, err := events.Open(ctx, events.Config{URL: c.URL(), Token: ClusterToken, Name: c.t.Name(), Replicas: clusterSize, MasterKey: MasterKey})
	if err != nil {
		c.t.Fatalf("open log: %v", err)
	}
	c.t.Cleanup(log.Close)
	return log
}
