package natsd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// damagedDir holds the files of damaged streams, the last ones of each, for inspection. It
// is beside the server's own directory.
const damagedDir = "damaged"

// infoTimeout bounds a request to a stream's leader.
const infoTimeout = 2 * time.Second

// copyOf is a stream's copy on this server.
type copyOf struct {
	stream string
	group  string // the raft group, which has a log of its own
}

// replaceable returns the broken streams that this server can get again from its cluster:
// another server leads, every other copy is complete, and no other server reports a problem
// with its copy. So two servers never rebuild a stream at once.
func (m *repairer) replaceable(ctx context.Context) []copyOf {
	if m.cfg.Cluster == "" {
		return nil
	}
	var all []copyOf
	for _, p := range m.broken {
		if p.stream == "" || slices.ContainsFunc(all, func(c copyOf) bool { return c.stream == p.stream }) {
			continue
		}
		group, err := m.healthyElsewhere(ctx, p.stream)
		if err != nil {
			m.logger().Warnf("stream %q is damaged here and cannot be rebuilt now: %v", p.stream, err)
			continue
		}
		all = append(all, copyOf{p.stream, group})
	}
	return all
}

// healthyElsewhere asks a stream's leader whether all other copies are complete, and
// returns the stream's raft group.
func (m *repairer) healthyElsewhere(ctx context.Context, stream string) (group string, err error) {
	nc, err := m.reports.conn(m.Server)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	msg, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.INFO."+stream, nil)
	if err != nil {
		return "", fmt.Errorf("ask its leader: %w", err)
	}
	var info server.JSApiStreamInfoResponse
	if err := json.Unmarshal(msg.Data, &info); err != nil {
		return "", fmt.Errorf("ask its leader: %w", err)
	}
	if info.Error != nil {
		return "", info.Error
	}
	return othersComplete(info.Cluster, m.cfg.name(), func(name string) error { return m.reports.sound(name, stream) })
}

// othersComplete returns the raft group of a stream whose copies on the other servers are
// complete and sound, at least two of them.
func othersComplete(c *server.ClusterInfo, ours string, sound func(server string) error) (group string, err error) {
	switch {
	case c == nil || c.RaftGroup == "" || c.Leader == "":
		return "", errors.New("it has no leader")
	case c.Leader == ours:
		return "", errors.New("this server leads it")
	}
	if err := sound(c.Leader); err != nil {
		return "", err
	}
	complete := 1 // the leader
	for _, p := range c.Replicas {
		switch {
		case p.Name == ours:
		case !p.Current || p.Offline || p.Lag > 0:
			return "", fmt.Errorf("the copy on %s is not complete either", p.Name)
		default:
			if err := sound(p.Name); err != nil {
				return "", err
			}
			complete++
		}
	}
	if complete < 2 {
		return "", errors.New("only one complete copy is left")
	}
	return c.RaftGroup, nil
}

// rebuild moves the files of damaged streams aside and restarts the server, which then gets
// the stored messages from the others. A copy without a log cannot elect an incomplete
// leader: raft does not count the vote of an empty log while the others have one.
func (m *repairer) rebuild(ctx context.Context, damaged []copyOf) bool {
	var names []string
	for _, c := range damaged {
		names = append(names, c.stream)
		delete(m.futile, c.stream)
	}
	m.logger().Errorf("the files of %s are damaged: they are moved to %s, and this server gets the streams again from the others",
		strings.Join(names, ", "), filepath.Join(m.cfg.Dir, damagedDir))
	return m.restartWith(ctx, func() error {
		for _, c := range damaged {
			if err := m.moveAside(c); err != nil {
				return err
			}
		}
		return nil
	})
}

// moveAside moves a stream's raft log and then its files out of the server's directory. If
// only the log was moved, because of an error or a kill, the stream is damaged as before. A
// log without its files would be worse: with it, a server without messages could become the
// leader.
func (m *repairer) moveAside(c copyOf) error {
	store := filepath.Join(m.cfg.Dir, "jetstream")
	to := filepath.Join(m.cfg.Dir, damagedDir, c.stream)
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, move := range []struct{ from, name string }{
		{filepath.Join(store, server.DEFAULT_SYSTEM_ACCOUNT, "_js_", c.group), "raft"},
		{filepath.Join(store, server.DEFAULT_GLOBAL_ACCOUNT, "streams", c.stream), "stream"},
	} {
		if err := os.Rename(move.from, filepath.Join(to, move.name)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}
