package connect

import (
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Config says how the surface behaves. The zero value of a field is its default.
type Config struct {
	// Keepalive is how long a stream may be quiet if the client does not say
	// (Keepalive-Ping-Interval, seconds). Default 90 s.
	Keepalive time.Duration
	// MaxMessage is the most bytes of one request message, as sent and as
	// decompressed. Default 4 MiB.
	MaxMessage int
	// MaxInput is the same for SendInput. Default 64 MiB. Of those that are larger than
	// MaxMessage two are in memory at once, the others wait.
	MaxInput int
}

// Handler serves the surface.
type Handler struct {
	core    Core
	streams *stream.Streams
	cfg     Config
	bulks   chan struct{} // see bulk
}

// New gives a handler over the core (see Over).
func New(c Core, streams *stream.Streams, cfg Config) *Handler {
	if cfg.Keepalive <= 0 {
		cfg.Keepalive = 90 * time.Second
	}
	if cfg.MaxMessage <= 0 {
		cfg.MaxMessage = 4 << 20
	}
	if cfg.MaxInput <= 0 {
		cfg.MaxInput = 64 << 20
	}
	return &Handler{core: c, streams: streams, cfg: cfg, bulks: make(chan struct{}, maxBulks)}
}

const (
	processService    = "/process.Process/"
	filesystemService = "/filesystem.Filesystem/"
)

// InputPath is that of SendInput, whose body may be larger than all others: this surface
// reads it itself.
const InputPath = processService + "SendInput"

// Register adds the routes. The principal must be known before (auth.From).
// StreamInput acts on data as it comes only if the server streams request bodies.
func (h *Handler) Register(r fiber.Router) {
	r.Post(processService+"Start", h.stream(h.start))
	r.Post(processService+"Connect", h.stream(h.connect))
	r.Post(processService+"List", unary(h, h.list))
	r.Post(processService+"SendSignal", unary(h, h.sendSignal))
	r.Post(InputPath, unaryUpTo(h.cfg.MaxInput, h, h.sendInput))
	r.Post(processService+"CloseStdin", unary(h, h.closeStdin))
	r.Post(processService+"Update", unary(h, h.update))
	r.Post(processService+"StreamInput", h.streamInput)
	r.Post(filesystemService+"Stat", unary(h, h.stat))
	r.Post(filesystemService+"MakeDir", unary(h, h.makeDir))
	r.Post(filesystemService+"Move", unary(h, h.move))
	r.Post(filesystemService+"ListDir", unary(h, h.listDir))
	r.Post(filesystemService+"Remove", unary(h, h.remove))
	r.Post(filesystemService+"Write", unary(h, h.write))
	r.Post(filesystemService+"WatchDir", h.stream(h.watchDir))
	r.Post(filesystemService+"CreateWatcher", unary(h, h.createWatcher))
	r.Post(filesystemService+"GetWatcherEvents", unary(h, h.getWatcherEvents))
	r.Post(filesystemService+"RemoveWatcher", unary(h, h.removeWatcher))
}
