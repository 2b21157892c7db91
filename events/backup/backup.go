package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/internal/restoring"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
)

// Target is a NATS server or cluster.
type Target struct {
	URL   string
	Token string
}

// Options configure a backup. Dir and Key are required.
type Options struct {
	Target
	Dir      string // directory of the backups
	Key      *Key
	Full     bool   // read everything, also what an earlier backup in Dir has
	Version  string // of the program
	Progress func(stream string, read *Part)
}

// order lists the streams as they are read: one that refers to another is before it. Streams that
// are not in the list are read first.
var order = [...]string{
	streams.HookLog, streams.Hooks, streams.Positions, streams.Attachments, streams.Persistence, streams.Conversations, streams.Use, streams.Meter, streams.Ledger,
	streams.Audit, streams.Commands, streams.Hosts, streams.Catalog, "OUT_", streams.Builds, streams.Sandboxes, streams.Snapshots, streams.Volumes, streams.Workspaces,
	streams.Bundles, streams.Vault, streams.Users, streams.Accounts, "OBJ_", streams.Secrets,
}

// objectStores are the object stores with data that cannot be made again.
var objectStores = [...]string{"OBJ_templates", "OBJ_contexts", "OBJ_workspaces"}

func rank(stream string) int {
	return slices.IndexFunc(order[:], func(o string) bool { return o == stream || strings.HasSuffix(o, "_") && strings.HasPrefix(stream, o) })
}

// inBackup reports whether a stream belongs to an installation and outlives its servers.
func inBackup(sc *jetstream.StreamConfig) bool {
	if slices.Contains(objectStores[:], sc.Name) {
		return true
	}
	if sc.Name == streams.Frames { // a cache
		return false
	}
	return sc.Storage == jetstream.FileStorage && len(sc.Subjects) == 1 && streams.Of(sc.Subjects[0]) == sc.Name
}

type backup struct {
	Options
	id string
	js jetstream.JetStream
}

// keyRetries bounds how often a backup starts again because the sealed data keys were replaced.
const keyRetries = 3

// Run makes a backup of a running installation and returns its manifest.
func Run(ctx context.Context, opt Options) (*Manifest, error) {
	if opt.Progress == nil {
		opt.Progress = func(string, *Part) {}
	}
	if err := os.MkdirAll(opt.Dir, 0o700); err != nil {
		return nil, kind.Wrap(kind.Invalid, "back up", opt.Dir, err)
	}
	unlock, err := lock(opt.Dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	nc, js, err := connect(opt.Target, "millrace-backup")
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	if err := removeCut(opt.Dir); err != nil {
		return nil, err
	}
	base, err := previous(&opt)
	if err != nil {
		return nil, err
	}
	for range keyRetries {
		m, err := attempt(ctx, &backup{opt, strings.ToLower(ulid.Make().String()), js}, base)
		if !errors.Is(err, errKeysReplaced) {
			return m, err
		}
		if err := removeCut(opt.Dir); err != nil {
			return nil, err
		}
	}
	return nil, kind.Wrap(kind.Unavailable, "back up", "", errKeysReplaced)
}

// previous returns the manifest of the newest backup in the directory; nil without one.
func previous(opt *Options) (*Manifest, error) {
	all, err := complete(opt.Dir)
	if err != nil || len(all) == 0 || opt.Full {
		return nil, err
	}
	return ReadManifest(opt.Dir, "", opt.Key)
}

// lock locks the directory against other backups.
func lock(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, kind.Newf(kind.Conflict, "back up", "", "another backup to %s is running", dir)
	}
	return func() { f.Close() }, nil
}

var errKeysReplaced = errors.New("the data keys were replaced during the backup: try again")

func attempt(ctx context.Context, b *backup, base *Manifest) (*Manifest, error) {
	m := &Manifest{ID: b.id, Version: b.Version, Began: time.Now().UTC()}
	if err := os.Mkdir(filepath.Join(b.Dir, b.id), 0o700); err != nil {
		return nil, err
	}
	names, err := b.names(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := b.keys(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		var from *Stream
		if base != nil {
			from = base.stream(name)
		}
		s, err := b.export(ctx, name, from)
		if err != nil {
			return nil, err
		}
		m.Streams = append(m.Streams, *s)
	}
	if now, err := b.keys(ctx); err != nil || now != keys {
		return nil, errors.Join(err, errKeysReplaced)
	}
	m.Ended = time.Now().UTC()
	return m, m.write(b.Dir, b.Key)
}

// names returns the streams of the installation in the order of the backup.
func (b *backup) names(ctx context.Context) ([]string, error) {
	var all []string
	list := b.js.ListStreams(ctx)
	for info := range list.Info() {
		if info.Config.Name == restoring.Stream {
			return nil, kind.New(kind.Precondition, "back up", "", "a restore into this installation has not finished")
		}
		if inBackup(&info.Config) {
			all = append(all, info.Config.Name)
		}
	}
	if err := list.Err(); err != nil {
		return nil, unavailable("", err)
	}
	if len(all) == 0 {
		return nil, kind.New(kind.Precondition, "back up", "", "the servers have no streams of Millrace")
	}
	slices.SortFunc(all, func(x, y string) int {
		if d := rank(x) - rank(y); d != 0 {
			return d
		}
		return strings.Compare(x, y)
	})
	return all, nil
}

// keys returns the sequence of the sealed data keys.
func (b *backup) keys(ctx context.Context) (uint64, error) {
	s, err := b.js.Stream(ctx, streams.Secrets)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, unavailable(streams.Secrets, err)
	}
	m, err := s.GetLastMsgForSubject(ctx, "secret.keys")
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, unavailable(streams.Secrets, err)
	}
	return m.Sequence, nil
}

// connect connects to the servers.
func connect(to Target, name string) (*nats.Conn, jetstream.JetStream, error) {
	opts := []nats.Option{nats.Name(name), nats.Timeout(5 * time.Second), nats.MaxReconnects(-1), nats.ReconnectWait(200 * time.Millisecond)}
	if to.Token != "" {
		opts = append(opts, nats.Token(to.Token))
	}
	nc, err := nats.Connect(to.URL, opts...)
	if err != nil {
		return nil, nil, unavailable("", fmt.Errorf("connect to nats: %w", err))
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return nc, js, nil
}

// unavailable wraps a failure to reach a stream.
func unavailable(stream string, err error) error {
	return &kind.Error{Op: "reach nats", ID: stream, Kind: kind.Unavailable, Msg: fmt.Sprintf("the log cannot be reached: %v", err), Err: err}
}
