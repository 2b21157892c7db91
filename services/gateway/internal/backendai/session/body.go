package session

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/events/process"
)

// Wanted is a request to create a session.
type Wanted struct {
	Name      string
	Image     string
	Tag       string
	Env       map[string]string
	CPUs      *float64
	MemoryMiB *int64
	Reuse     bool          // the session with the name is returned if it exists
	Enqueue   bool          // the response does not wait until the session runs
	MaxWait   time.Duration // maximum time to wait until it runs; 0: the gateway's own
	Preopen   []int         // ports that are services, too
	Idle      time.Duration // time without requests after which it ends; 0: the default
	Owner     string        // access key of the owner; empty: that of the request
	Command   string        // command of a batch session, whose end is that of the session; empty: an interactive one
}

// body is the body of a request in all versions of the API. A pointer is nil if the field is
// absent or null.
type body struct {
	unavailable
	Image            *string  `json:"image"`
	Lang             *string  `json:"lang"`
	Name             *string  `json:"name"`
	SessionName      *string  `json:"session_name"`
	SessionNameCamel *string  `json:"sessionName"`
	ClientToken      *string  `json:"clientSessionToken"`
	ClientTokenSnake *string  `json:"client_session_token"`
	Tag              *string  `json:"tag"`
	Type             *string  `json:"type"`
	SessionType      *string  `json:"sessionType"`
	SessionTypeSnake *string  `json:"session_type"`
	StartupCommand   *string  `json:"startupCommand"`
	StartupSnake     *string  `json:"startup_command"`
	EnqueueOnly      *bool    `json:"enqueueOnly"`
	EnqueueOnlySnake *bool    `json:"enqueue_only"`
	ReuseIfExists    *bool    `json:"reuseIfExists"`
	Reuse            *bool    `json:"reuse"`
	Owner            *string  `json:"owner_access_key"`
	OwnerCamel       *string  `json:"ownerAccessKey"`
	MaxWait          *float64 `json:"maxWaitSeconds"`
	MaxWaitSnake     *float64 `json:"max_wait_seconds"`
	IdleTimeout      *float64 `json:"idleTimeout"`
	Config           *config  `json:"config"`
}

// unavailable are the fields of what does not exist here.
type unavailable struct {
	ClusterSize      *int64  `json:"clusterSize"`
	ClusterSizeSnake *int64  `json:"cluster_size"`
	StartsAt         *string `json:"startsAt"`
	StartsAtSnake    *string `json:"starts_at"`
}

// config is the resources and the environment of a session.
type config struct {
	Environ      map[string]string          `json:"environ"`
	Mounts       json.RawMessage            `json:"mounts"`
	MountMap     json.RawMessage            `json:"mount_map"`
	Resources    map[string]json.RawMessage `json:"resources"`
	ClusterSize  *int64                     `json:"clusterSize"`
	Preopen      []int                      `json:"preopen_ports"`
	PreopenCamel []int                      `json:"preopenPorts"`
	Memory       json.RawMessage            `json:"instanceMemory"` // MiB
	Cores        json.RawMessage            `json:"instanceCores"`
	GPUs         json.RawMessage            `json:"instanceGPUs"`
	TPUs         json.RawMessage            `json:"instanceTPUs"`
}

// Decode decodes and checks a request. Its errors are Invalid with the code [BadParams], or
// NotFound for what does not exist here.
func Decode(raw []byte) (Wanted, error) {
	var b body
	if err := json.Unmarshal(raw, &b); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) && wrong.Field != "" {
			return Wanted{}, invalid("%s: must not be a %s", wrong.Field, wrong.Value)
		}
		return Wanted{}, invalid("the body is not a JSON object")
	}
	w := Wanted{
		Name:    first("", b.Name, b.SessionName, b.SessionNameCamel, b.ClientToken, b.ClientTokenSnake),
		Image:   first("", b.Image, b.Lang),
		Tag:     first("", b.Tag),
		Owner:   first("", b.Owner, b.OwnerCamel),
		Reuse:   first(true, b.ReuseIfExists, b.Reuse),
		Enqueue: first(false, b.EnqueueOnly, b.EnqueueOnlySnake),
	}
	if err := w.check(&b); err != nil {
		return Wanted{}, err
	}
	if b.Config != nil {
		if err := w.apply(b.Config); err != nil {
			return Wanted{}, err
		}
	}
	return w, nil
}

const maxSeconds = 365 * 24 * 3600

func (w *Wanted) check(b *body) error {
	wait, idle := first(0, b.MaxWait, b.MaxWaitSnake), first(0, b.IdleTimeout)
	switch {
	case w.Image == "":
		return invalid("image is required")
	case len(w.Tag) > maxName:
		return invalid("tag: must have at most %d bytes", maxName)
	case wait < 0 || wait > maxSeconds:
		return invalid("maxWaitSeconds: must be between 0 and %d", maxSeconds)
	case idle < 0 || idle > maxSeconds:
		return invalid("idleTimeout: must be between 0 and %d", maxSeconds)
	case first(1, b.ClusterSize, b.ClusterSizeSnake) != 1:
		return invalid("clusterSize: only sessions of one container are available")
	case first("", b.StartsAt, b.StartsAtSnake) != "":
		return invalid("startsAt: sessions cannot be scheduled for later")
	}
	if err := w.typed(first("interactive", b.Type, b.SessionType, b.SessionTypeSnake), first("", b.StartupCommand, b.StartupSnake)); err != nil {
		return err
	}
	w.MaxWait, w.Idle = time.Duration(wait*float64(time.Second)), time.Duration(idle*float64(time.Second))
	return CheckName(w.Name)
}

// apply checks and applies the configuration.
func (w *Wanted) apply(c *config) error {
	if c.ClusterSize != nil && *c.ClusterSize != 1 {
		return invalid("clusterSize: only sessions of one container are available")
	}
	if !empty(c.Mounts) || !empty(c.MountMap) {
		return missingFolder()
	}
	if err := process.CheckEnv("create session", c.Environ); err != nil {
		return invalid("environ: a variable cannot be set")
	}
	w.Env = c.Environ
	if err := w.preopen(slices.Concat(c.Preopen, c.PreopenCamel)); err != nil {
		return err
	}
	for name, raw := range c.Resources {
		if err := w.resource(name, raw); err != nil {
			return err
		}
	}
	for _, x := range []struct {
		name string
		raw  json.RawMessage
	}{{"cpu", c.Cores}, {"instanceMemory", c.Memory}, {"instanceGPUs", c.GPUs}, {"instanceTPUs", c.TPUs}} {
		if err := w.resource(x.name, x.raw); err != nil {
			return err
		}
	}
	return nil
}

// resource sets one resource. Those that do not exist here must be zero.
func (w *Wanted) resource(name string, raw json.RawMessage) error {
	if empty(raw) {
		return nil
	}
	amount, ok := quantity(raw)
	switch {
	case !ok:
		return invalid("%.64q: must be a number or a size", name)
	case name == "cpu":
		w.CPUs = &amount
	case name == "mem":
		mib := int64(amount) >> 20
		w.MemoryMiB = &mib
	case name == "instanceMemory":
		mib := int64(amount)
		w.MemoryMiB = &mib
	case amount != 0:
		return invalid("%.64q: this resource is not available", name)
	}
	return nil
}

// suffixes are the units of sizes.
var suffixes = map[string]float64{"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

const maxQuantity = 1 << 50

// quantity parses a number, or a text such as "2" or "512m".
func quantity(raw json.RawMessage) (float64, bool) {
	text := strings.Trim(string(raw), `"`)
	digits := strings.TrimRight(text, "kKmMgGtTiIbB")
	unit := strings.ToLower(text[len(digits):])
	unit = strings.TrimSuffix(strings.TrimSuffix(unit, "b"), "i")
	factor, ok := suffixes[unit]
	n, err := strconv.ParseFloat(digits, 64)
	n *= cmp.Or(factor, 1)
	return n, ok && err == nil && n >= 0 && n <= maxQuantity
}

// empty reports whether a value is absent, null, or without content.
func empty(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", "[]", "{}", `""`:
		return true
	}
	return false
}

// first returns the first value that is set.
func first[T any](otherwise T, of ...*T) T {
	for _, p := range of {
		if p != nil {
			return *p
		}
	}
	return otherwise
}
