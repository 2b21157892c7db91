package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/internal/restoring"
	"github.com/millrace/millrace/events/kind"
)

// RestoreOptions configure a restore. Dir and Key are required.
type RestoreOptions struct {
	Target
	Dir      string
	ID       string // of the backup; default the newest
	Key      *Key
	Replicas int // of each stream; default as in the backup
	Progress func(stream string, messages uint64)
}

type restore struct {
	RestoreOptions
	nc *nats.Conn
	js jetstream.JetStream
	m  *Manifest
}

// Restore restores a backup into an installation without streams. It verifies the backup before it
// changes anything. Services do not start until it has finished; after a cut, it is repeated from
// the beginning.
func Restore(ctx context.Context, opt RestoreOptions) (*Manifest, error) {
	if opt.Progress == nil {
		opt.Progress = func(string, uint64) {}
	}
	m, err := ReadManifest(opt.Dir, opt.ID, opt.Key)
	if err != nil {
		return nil, err
	}
	if _, err := Verify(ctx, opt.Dir, m, opt.Key); err != nil {
		return nil, err
	}
	nc, js, err := connect(opt.Target, "millrace-restore")
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	r := &restore{opt, nc, js, m}
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	configs, err := r.fit(ctx)
	if err != nil {
		return nil, err
	}
	for i := range m.Streams {
		if err := r.repeated(ctx, &m.Streams[i], &configs[i]); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(r.endLeases(ctx), r.awaitReplicas(ctx)); err != nil {
		return nil, err
	}
	return m, unavailableIf(restoring.Stream, js.DeleteStream(ctx, restoring.Stream))
}

// begin marks the installation as being restored. It removes what a restore left that was cut, and
// rejects an installation that has data.
func (r *restore) begin(ctx context.Context) error {
	var old []string
	marked := false
	list := r.js.ListStreams(ctx)
	for info := range list.Info() {
		switch {
		case info.Config.Name == restoring.Stream:
			marked = true
		case r.m.stream(info.Config.Name) != nil || inBackup(&info.Config):
			old = append(old, info.Config.Name)
		}
	}
	if err := list.Err(); err != nil {
		return unavailable("", err)
	}
	if !marked && len(old) > 0 {
		return &kind.Error{Op: "restore", Kind: kind.Precondition, Code: "restore_not_empty", Msg: fmt.Sprintf("the servers have streams already, such as %s: restore into servers with an empty data directory", old[0])}
	}
	marker := jetstream.StreamConfig{Name: restoring.Stream, Subjects: []string{"restore.>"}, Storage: jetstream.FileStorage, Replicas: r.replicas(&r.m.Streams[0].Config), Description: "a restore that has not finished"}
	if _, err := r.js.CreateOrUpdateStream(ctx, marker); err != nil {
		return unavailable(restoring.Stream, err)
	}
	for _, name := range old {
		if err := r.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return unavailable(name, err)
		}
	}
	return nil
}

func (r *restore) replicas(sc *jetstream.StreamConfig) int {
	if r.Replicas > 0 {
		return r.Replicas
	}
	return sc.Replicas
}

// shrinks is how often the limits of streams are halved if the disk is smaller than that of the
// installation in the backup.
const shrinks = 6

// fit returns configurations of the streams whose limits the servers accept. They reserve the
// limit of each stream, so that all streams are created empty first and then removed.
func (r *restore) fit(ctx context.Context) ([]jetstream.StreamConfig, error) {
	var err error
	for shrink := range shrinks {
		all := make([]jetstream.StreamConfig, len(r.m.Streams))
		for i := range r.m.Streams {
			all[i] = r.config(&r.m.Streams[i], shrink)
		}
		if err = r.try(ctx, all); err == nil {
			return all, nil
		}
		if !insufficient(err) {
			return nil, unavailable("", err)
		}
	}
	return nil, &kind.Error{Op: "restore", Kind: kind.Exhausted, Code: "restore_no_space", Msg: fmt.Sprintf("the servers have too little disk space for the backup: %v", err), Err: err}
}

// config returns the configuration of a stream whose limit was halved a number of times.
func (r *restore) config(s *Stream, shrink int) jetstream.StreamConfig {
	sc := s.Config
	sc.Replicas = r.replicas(&sc)
	if sc.MaxBytes <= 0 || shrink == 0 {
		return sc
	}
	var stored uint64
	for _, p := range s.Parts {
		stored += p.Payload + p.Messages*messageOverhead
	}
	sc.MaxBytes = min(sc.MaxBytes, max(sc.MaxBytes>>shrink, minBytes, int64(stored+stored/8)))
	return sc
}

const (
	messageOverhead = 64
	minBytes        = 8 << 20
)

func (r *restore) try(ctx context.Context, all []jetstream.StreamConfig) (err error) {
	created := 0
	for i := range all {
		if _, err = r.js.CreateStream(ctx, all[i]); err != nil {
			break
		}
		created++
	}
	for i := range created {
		if e := r.js.DeleteStream(ctx, all[i].Name); e != nil {
			return e
		}
	}
	return err
}

// insufficient reports whether the servers have too little disk space for a stream.
func insufficient(err error) bool {
	const noResources, noPeers, noStorage, noMemoryOrStorage = 10023, 10005, 10047, 10028
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch int(api.ErrorCode) {
	case noResources, noPeers, noStorage, noMemoryOrStorage:
		return true
	}
	return false
}

// tries is how often the restore of a stream is tried.
const tries = 5

// repeated restores one stream, again if the servers gave up.
func (r *restore) repeated(ctx context.Context, s *Stream, sc *jetstream.StreamConfig) error {
	for try := 1; ; try++ {
		err := r.stream(ctx, s, sc)
		if !errors.Is(err, errGivenUp) || try == tries {
			return err
		}
		select {
		case <-time.After(time.Duration(try) * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := r.js.DeleteStream(ctx, sc.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return unavailable(sc.Name, err)
		}
	}
}

// stream restores one stream.
func (r *restore) stream(ctx context.Context, s *Stream, sc *jetstream.StreamConfig) error {
	c, err := newComposer(r.Dir, s, r.Key)
	if err != nil {
		return err
	}
	to, err := r.request(ctx, sc, &c.state)
	if err != nil {
		return unavailable(sc.Name, err)
	}
	u, err := newUpload(r.nc, to)
	if err != nil {
		return unavailable(sc.Name, err)
	}
	defer u.close()
	if err := c.writeTo(writer{ctx, u}); err != nil {
		return err
	}
	restored, err := u.finish(ctx)
	if err != nil {
		return unavailable(sc.Name, err)
	}
	if restored.LastSeq != s.LastSeq {
		return unavailable(sc.Name, fmt.Errorf("the stream ends at %d instead of %d", restored.LastSeq, s.LastSeq))
	}
	r.Progress(sc.Name, restored.Msgs)
	return nil
}

// request asks the servers to restore a stream. It returns the subject for the archive.
func (r *restore) request(ctx context.Context, sc *jetstream.StreamConfig, st *state) (subject string, err error) {
	body, err := json.Marshal(struct {
		Config *jetstream.StreamConfig `json:"config"`
		State  *state                  `json:"state"`
	}{sc, st})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	msg, err := r.nc.RequestWithContext(ctx, "$JS.API.STREAM.RESTORE."+sc.Name, body)
	if err != nil {
		return "", err
	}
	var answer struct {
		Subject string              `json:"deliver_subject"`
		Error   *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return "", err
	}
	if answer.Error != nil {
		return "", answer.Error
	}
	return answer.Subject, nil
}

// awaitReplicas waits until each stream has its complete copies.
func (r *restore) awaitReplicas(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for i := range r.m.Streams {
		name := r.m.Streams[i].Config.Name
		for !r.replicated(ctx, name) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return unavailable(name, fmt.Errorf("its copies are not complete: %w", ctx.Err()))
			}
		}
	}
	return nil
}

func (r *restore) replicated(ctx context.Context, name string) bool {
	s, err := r.js.Stream(ctx, name)
	if err != nil {
		return false
	}
	info := s.CachedInfo()
	if info.Config.Replicas <= 1 {
		return true
	}
	if info.Cluster == nil || info.Cluster.Leader == "" || len(info.Cluster.Replicas) < info.Config.Replicas-1 {
		return false
	}
	for _, p := range info.Cluster.Replicas {
		if !p.Current {
			return false
		}
	}
	return true
}

func unavailableIf(stream string, err error) error {
	if err == nil {
		return nil
	}
	return unavailable(stream, err)
}

// writer passes a context with each write.
type writer struct {
	ctx context.Context //nolint:containedctx // io.Writer has no context
	u   *upload
}

func (w writer) Write(b []byte) (int, error) {
	if err := w.u.write(w.ctx, b); err != nil {
		return 0, unavailable("", err)
	}
	return len(b), nil
}

var _ io.Writer = writer{}
