package builder

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Config configures a Builder. All interfaces are required; the zero value of another field is
// its default.
type Config struct {
	Builds interface {
		PendingBuilds() []catalog.Build
		Builds
		Records
		Contexts
		Credentials
	}
	Templates interface {
		Templates
		Names
		Parts
	}
	Bases       Bases
	Layers      Layers
	Provisioner Provisioner
	Sandboxes   interface {
		Sandboxes
		BuildSandboxes
		Files
	}
	Processes Processes
	Keys      Keys
	Sealer    *seal.Ring // seals environments in records

	Slog *slog.Logger

	// Registries are the registries at non-public addresses from which images may be pulled,
	// as HOST or HOST:PORT.
	Registries []string
	// ECREndpoint is the URL of the API that issues passwords for AWS's registries; default:
	// that of their region.
	ECREndpoint string

	AtOnce int // maximum number of concurrent builds; default 4
}

const (
	defaultAtOnce = 4
	scanInterval  = 2 * time.Second  // interval of the search for builds without a live owner
	claimInterval = 3 * time.Second  // interval at which the owner renews its claim
	claimTimeout  = 10 * time.Second // age at which a claim expires
	buildTimeout  = time.Hour        // maximum duration of a build
)

// Builder runs builds.
type Builder struct {
	cfg        Config
	registries registries
	name       string // id of this run, in the claims of its builds
	kick       chan struct{}

	mu      sync.Mutex
	running map[build.ID]struct{}
}

// New returns a Builder that does nothing yet.
func New(cfg Config) *Builder {
	cfg.AtOnce = cmp.Or(max(cfg.AtOnce, 0), defaultAtOnce)
	cfg.Slog = cmp.Or(cfg.Slog, slog.New(slog.DiscardHandler))
	return &Builder{
		cfg: cfg, registries: registries{listed: cfg.Registries, ecr: cfg.ECREndpoint},
		name: ulid.Make().String(), kick: make(chan struct{}, 1), running: make(map[build.ID]struct{}),
	}
}

// Kick makes the Builder look for builds at once.
func (b *Builder) Kick() {
	waiting.Notify(b.kick)
}

// Run runs builds until ctx ends. It leaves unfinished ones to other gateways.
func (b *Builder) Run(ctx context.Context) error {
	sweepScratch(minScratchAge)
	t := time.NewTicker(scanInterval)
	defer t.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		for _, pending := range b.cfg.Builds.PendingBuilds() {
			if !b.take(&pending) {
				continue
			}
			wg.Go(func() {
				b.do(ctx, &pending)
				b.release(pending.ID)
				b.Kick()
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-b.kick:
		}
	}
}

// take decides whether to start a build that this Builder does not run yet.
func (b *Builder) take(p *catalog.Build) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.running[p.ID]; ok || len(b.running) >= b.cfg.AtOnce {
		return false
	}
	if p.Holder != "" && time.Since(p.Received) < claimTimeout {
		return false
	}
	b.running[p.ID] = struct{}{}
	return true
}

func (b *Builder) release(id build.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, id)
}

// do runs one build, unless another gateway claims it first.
func (b *Builder) do(ctx context.Context, p *catalog.Build) {
	state, err := b.cfg.Builds.AppendBuild(ctx, &p.State, build.Claimed{By: b.name})
	if err != nil {
		if !kind.Is(err, kind.Conflict) && ctx.Err() == nil {
			b.cfg.Slog.Warn("claim build failed", "build", p.ID, "err", err)
		}
		return
	}
	b.newRun(state, *state.Spec, core.Principal{Tenant: p.Tenant}).do(ctx)
}
