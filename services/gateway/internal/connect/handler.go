package connect

import (
	"cmp"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Config configures the surface. A zero field means its default.
type Config struct {
	// Keepalive is the interval of keepalives if the client sends no
	// Keepalive-Ping-Interval (seconds). Default 90 s.
	Keepalive time.Duration
	// MaxMessage is the maximum size of a request message in bytes, both as sent
	// and decompressed. Default 4 MiB.
	MaxMessage int
	// MaxInput is the same for SendInput. Default 64 MiB. At most two messages larger
	// than MaxMessage are in memory at once; further ones wait.
	MaxInput int
}

// Handler serves the surface.
type Handler struct {
	core    Core
	streams *stream.Streams
	cfg     Config
	bulks   chan struct{} // see bulk
	files   fileHandler
	watches watchHandler
}

// New returns a handler that serves c (see [Over]).
func New(c Core, streams *stream.Streams, cfg Config) *Handler {
	cfg.Keepalive = cmp.Or(max(cfg.Keepalive, 0), 90*time.Second)
	cfg.MaxMessage = cmp.Or(max(cfg.MaxMessage, 0), 4<<20)
	cfg.MaxInput = cmp.Or(max(cfg.MaxInput, 0), 64<<20)
	return &Handler{
		core: c, streams: streams, cfg: cfg, bulks: make(chan struct{}, maxBulks),
		files:   fileHandler{sandboxes: c, files: c, streams: streams},
		watches: watchHandler{core: c, streams: streams, interval: cfg.Keepalive},
	}
}

const (
	processService    = "/process.Process/"
	filesystemService = "/filesystem.Filesystem/"
)

// Register adds the routes. Authentication must run before them (auth.From). The surface reads
// the bodies of SendInput and StreamInput itself. StreamInput processes data as it arrives only if the server streams request bodies.
func (h *Handler) Register(r fiber.Router) {
	r.Post(processService+"Start", h.stream(h.start))
	r.Post(processService+"Connect", h.stream(h.connect))
	r.Post(processService+"List", unary(h, h.list))
	r.Post(processService+"SendSignal", unary(h, h.sendSignal))
	r.Post(processService+"SendInput", unaryUpTo(h.cfg.MaxInput, h, h.sendInput))
	r.Post(processService+"CloseStdin", unary(h, h.closeStdin))
	r.Post(processService+"Update", unary(h, h.update))
	r.Post(processService+"StreamInput", h.streamInput)
	r.Post(filesystemService+"Stat", unary(h, h.files.stat))
	r.Post(filesystemService+"MakeDir", unary(h, h.files.makeDir))
	r.Post(filesystemService+"Move", unary(h, h.files.move))
	r.Post(filesystemService+"ListDir", unary(h, h.files.listDir))
	r.Post(filesystemService+"Remove", unary(h, h.files.remove))
	r.Post(filesystemService+"Write", unary(h, h.files.write))
	r.Post(filesystemService+"WatchDir", h.stream(h.watches.watchDir))
	r.Post(filesystemService+"CreateWatcher", unary(h, h.watches.createWatcher))
	r.Post(filesystemService+"GetWatcherEvents", unary(h, h.watches.getWatcherEvents))
	r.Post(filesystemService+"RemoveWatcher", unary(h, h.watches.removeWatcher))
}
