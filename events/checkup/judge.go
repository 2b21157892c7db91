package checkup

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Finding is the result of one check.
type Finding struct {
	OK      bool   `json:"ok"`
	Subject string `json:"subject"`
	Detail  string `json:"detail"`
	Do      string `json:"do,omitempty"` // how to repair it
}

// ServicePrefix precedes the role and the version of a service in the name of its connection.
const ServicePrefix = "millrace-"

// roles are the services that an installation needs. The role up stands for all of them.
var roles = [...]string{"gateway", "scheduler", "reaper", "hostd"}

const (
	clusterSize = 3
	maxSkew     = time.Second
	nearlyFull  = 90 // percent of a stream's limit
)

// judge turns facts into findings.
func judge(f *facts) []Finding {
	var all []Finding
	if f.restoring {
		all = append(all, Finding{Subject: "restore", Detail: "a restore was cut", Do: "run millrace restore again; services do not start before it has finished"})
	}
	all = append(all, f.judgeServers()...)
	all = append(all, f.judgeStreams()...)
	all = append(all, f.judgeServices()...)
	return append(all, f.judgeHosts()...)
}

// copies are what streams report of the copies on one server.
type copies struct{ behind []string }

func (f *facts) judgeServers() (all []Finding) {
	for _, u := range slices.Sorted(maps.Keys(f.unreachable)) {
		all = append(all, Finding{Subject: "NATS at " + u, Detail: f.unreachable[u], Do: "start this server, or remove the URL from --nats; check its address, the firewall and the token"})
	}
	known, clustered := f.copies()
	versions := make(map[string]bool)
	leaders := 0
	var first, last time.Duration
	for i, s := range f.servers {
		if known[s.Server] == nil {
			known[s.Server] = &copies{}
		}
		versions[s.NATS] = true
		if s.MetaLeader {
			leaders++
		}
		if i == 0 {
			first, last = s.ahead, s.ahead
		}
		first, last = min(first, s.ahead), max(last, s.ahead)
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		all = append(all, f.judgeServer(name, known[name]))
	}
	if len(f.servers) == 0 {
		all = append(all, Finding{Subject: "NATS servers", Detail: "none reports its health", Do: "run them with millrace nats: servers of other programs do not report damaged files"})
	}
	if clustered && leaders == 0 {
		all = append(all, Finding{Subject: "JetStream", Detail: "the cluster has no leader", Do: "start the servers that are offline: a majority is needed"})
	}
	if len(versions) > 1 {
		all = append(all, Finding{Subject: "NATS versions", Detail: strings.Join(slices.Sorted(maps.Keys(versions)), ", "), Do: "finish the upgrade: run the same version on all servers"})
	}
	if skew := last - first; skew > maxSkew {
		all = append(all, Finding{Subject: "clocks", Detail: fmt.Sprintf("the clocks of the NATS servers differ by %v", skew.Round(time.Millisecond)), Do: "synchronize the clocks, for example with chrony: retention and lifetimes follow them"})
	}
	return all
}

// copies returns what streams report of each server, and whether there is a cluster.
func (f *facts) copies() (known map[string]*copies, clustered bool) {
	known = make(map[string]*copies)
	of := func(server string) *copies {
		if known[server] == nil {
			known[server] = &copies{}
		}
		return known[server]
	}
	for _, s := range f.streams {
		if s.info == nil || s.info.Cluster == nil || s.info.Cluster.Name == "" {
			continue
		}
		clustered = true
		if l := s.info.Cluster.Leader; l != "" {
			of(l)
		}
		for _, p := range s.info.Cluster.Replicas {
			switch c := of(p.Name); {
			case p.Offline: // it does not report either
			case !p.Current:
				c.behind = append(c.behind, fmt.Sprintf("%s by %d", s.name, p.Lag))
			}
		}
	}
	return known, clustered || slices.ContainsFunc(f.servers, func(s server) bool { return s.Clustered })
}

func (f *facts) judgeServer(name string, c *copies) Finding {
	out := Finding{Subject: "NATS server " + name}
	i := slices.IndexFunc(f.servers, func(s server) bool { return s.Server == name })
	switch {
	case i < 0:
		out.Detail = fmt.Sprintf("offline: no report for %v", listen)
		out.Do = "start the server; if it runs, read its log and check its network. One more failure stops all writes"
	case len(f.servers[i].Problems) > 0:
		var text []string
		for _, p := range f.servers[i].Problems {
			text = append(text, strings.TrimSpace(p.Stream+" "+p.Error))
		}
		out.Detail = "cannot store: " + strings.Join(text, "; ")
		out.Do = "check its disk; damaged copies are replaced once the two other servers are complete, see its log"
	case len(c.behind) > 0:
		out.Detail = "copies are behind: " + strings.Join(c.behind, ", ")
		out.Do = "wait: it catches up. If it does not, check its disk and network"
	default:
		out.OK, out.Detail = true, "nats-server "+f.servers[i].NATS
		if f.servers[i].MetaLeader {
			out.Detail += ", leads the cluster"
		}
	}
	return out
}

func (f *facts) judgeStreams() (all []Finding) {
	var sound int
	for _, s := range f.streams {
		out := Finding{Subject: "stream " + s.name}
		switch {
		case errors.Is(s.err, jetstream.ErrStreamNotFound):
			out.Detail, out.Do = "does not exist", "start a gateway: the first service creates missing streams"
		case s.err != nil:
			out.Detail, out.Do = fmt.Sprintf("does not answer: %v", s.err), "start the servers that are offline: without a majority of its copies a stream has no leader"
		case s.info.Cluster != nil && s.info.Cluster.Name != "" && s.info.Cluster.Leader == "":
			out.Detail, out.Do = "has no leader", "start the servers that are offline: a majority of its copies is needed"
		case len(f.servers) >= clusterSize && s.info.Config.Replicas < clusterSize && s.info.Config.Storage == jetstream.FileStorage:
			out.Detail = fmt.Sprintf("has %d of %d copies: the loss of a server loses it", s.info.Config.Replicas, clusterSize)
			out.Do = fmt.Sprintf("run: nats stream edit %s --replicas %d; start services with --replicas %d", s.name, clusterSize, clusterSize)
		case full(s.info):
			out.Detail = fmt.Sprintf("uses %d of %d bytes, and rejects messages when it is full", s.info.State.Bytes, s.info.Config.MaxBytes)
			out.Do = "delete what is not needed, or raise its limit with: nats stream edit " + s.name + " --max-bytes"
		default:
			sound++
			continue
		}
		all = append(all, out)
	}
	if sound > 0 {
		all = append(all, Finding{OK: true, Subject: "streams", Detail: fmt.Sprintf("%d of %d can be written", sound, len(f.streams))})
	}
	return all
}

func full(info *jetstream.StreamInfo) bool {
	most := info.Config.MaxBytes
	return most > 0 && info.Config.Discard == jetstream.DiscardNew && info.State.Bytes >= uint64(most)/100*nearlyFull
}

// judgeServices finds roles without a service, and services of different versions, by the names of
// the connections to the servers that report.
func (f *facts) judgeServices() (all []Finding) {
	versions := make(map[string][]string)
	have := make(map[string]int)
	for _, s := range f.servers {
		for name, n := range s.Clients {
			rest, ok := strings.CutPrefix(name, ServicePrefix)
			role, version, _ := strings.Cut(rest, " ")
			if !ok || role != "up" && !slices.Contains(roles[:], role) {
				continue
			}
			have[role] += n
			if !slices.Contains(versions[version], role) {
				versions[version] = append(versions[version], role)
			}
		}
	}
	for _, role := range roles {
		switch n := have[role]; {
		case have["up"] > 0:
			all = append(all, Finding{OK: true, Subject: role, Detail: "part of up"})
		case n > 0:
			all = append(all, Finding{OK: true, Subject: role, Detail: fmt.Sprintf("%d connected", n)})
		case len(f.servers) > 0:
			all = append(all, Finding{Subject: role, Detail: "no service is connected", Do: "start one: millrace " + role})
		}
	}
	if len(versions) > 1 {
		var text []string
		for _, v := range slices.Sorted(maps.Keys(versions)) {
			text = append(text, fmt.Sprintf("%s: %s", v, strings.Join(slices.Sorted(slices.Values(versions[v])), " ")))
		}
		all = append(all, Finding{Subject: "versions", Detail: strings.Join(text, "; "), Do: "finish the upgrade: run the same version of all services"})
	}
	return all
}

func (f *facts) judgeHosts() (all []Finding) {
	alive := 0
	slices.SortFunc(f.hosts, func(a, b host) int { return strings.Compare(a.Host, b.Host) })
	for _, h := range f.hosts {
		out := Finding{Subject: "host " + h.Lease.Host}
		switch {
		case h.Gone:
			continue // it left, or its sandboxes were ended
		case h.age > h.TTL:
			out.Detail = fmt.Sprintf("its lease ended %v ago", (h.age - h.TTL).Round(time.Second))
			out.Do = "start hostd there, or check its network; a reaper ends its sandboxes"
		default:
			alive++
			out.OK, out.Detail = true, fmt.Sprintf("alive, %d of %d sandboxes, version %s", h.Sandboxes, h.Capacity, h.Version)
		}
		all = append(all, out)
	}
	if alive == 0 {
		all = append(all, Finding{Subject: "hosts", Detail: "none is alive: no sandbox can be created", Do: "start one: millrace hostd"})
	}
	return all
}
