package e2b

import (
	"math"
	"time"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
)

const (
	// clientID is obsolete: old SDKs append it to the sandbox's id.
	clientID = "millrace"

	stateRunning = "running"
	statePaused  = "paused"
)

// sandboxBody is E2B's Sandbox.
type sandboxBody struct {
	TemplateID         string   `json:"templateID"`
	SandboxID          string   `json:"sandboxID"`
	ClientID           string   `json:"clientID"`
	EnvdVersion        string   `json:"envdVersion"`
	Alias              string   `json:"alias,omitempty"`
	EnvdAccessToken    string   `json:"envdAccessToken,omitempty"`
	TrafficAccessToken *string  `json:"trafficAccessToken"`
	Domain             *string  `json:"domain"`
	Warnings           []string `json:"warnings,omitempty"` // not part of E2B's API: limits that are not enforced
}

// listedBody is E2B's ListedSandbox.
type listedBody struct {
	TemplateID   string            `json:"templateID"`
	SandboxID    string            `json:"sandboxID"`
	ClientID     string            `json:"clientID"`
	EnvdVersion  string            `json:"envdVersion"`
	Alias        string            `json:"alias,omitempty"`
	StartedAt    time.Time         `json:"startedAt"`
	EndAt        time.Time         `json:"endAt"`
	CPUCount     uint32            `json:"cpuCount"`
	MemoryMB     uint32            `json:"memoryMB"`
	DiskSizeMB   uint32            `json:"diskSizeMB"`
	State        string            `json:"state"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	VolumeMounts []mountBody       `json:"volumeMounts"`
}

// detailBody is E2B's SandboxDetail.
type detailBody struct {
	listedBody
	EnvdAccessToken     string        `json:"envdAccessToken,omitempty"`
	Domain              *string       `json:"domain"`
	AllowInternetAccess *bool         `json:"allowInternetAccess"`
	Network             any           `json:"network,omitempty"`
	Lifecycle           lifecycleBody `json:"lifecycle"`
	Isolation           string        `json:"isolation,omitempty"` // not part of E2B's API: the actual isolation
	Warnings            []string      `json:"warnings,omitempty"`  // not part of E2B's API: limits that are not enforced
}

type lifecycleBody struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"`
}

func (h *Handler) domain() *string {
	if h.cfg.Domain == "" {
		return nil
	}
	return &h.cfg.Domain
}

func (h *Handler) token(st *sandbox.State) string {
	if !st.Request.Secure {
		return ""
	}
	return h.ops.Lifecycle.Token(st.ID)
}

func (h *Handler) sandbox(st *sandbox.State) sandboxBody {
	return sandboxBody{
		TemplateID: wire.TemplateID(st), SandboxID: string(st.ID), ClientID: clientID,
		EnvdVersion: wire.EnvdVersion, Alias: st.Request.Alias,
		EnvdAccessToken: h.token(st), TrafficAccessToken: h.trafficToken(st), Domain: h.domain(), Warnings: st.Warnings(),
	}
}

func (h *Handler) listed(st *sandbox.State) listedBody {
	cpus, memory, disk := (st.Request.CPUMilli+999)/1000, st.Request.MemoryMiB, st.Request.DiskMiB
	if host, ok := h.ops.Hosts.Host(st.Host); ok {
		if cpus == 0 {
			cpus = host.CPUs
		}
		if memory == 0 {
			memory = uint32(host.MemoryTotal >> 20)
		}
		if disk == 0 {
			disk = uint32(min(host.DiskTotal>>20, math.MaxInt32))
		}
	}
	return listedBody{
		TemplateID: wire.TemplateID(st), SandboxID: string(st.ID), ClientID: clientID,
		EnvdVersion: wire.EnvdVersion, Alias: st.Request.Alias,
		StartedAt: st.Started.UTC(), EndAt: st.Deadline.UTC(),
		CPUCount: cpus, MemoryMB: memory, DiskSizeMB: disk,
		State: stateOf(st), Metadata: st.Request.Metadata, VolumeMounts: mountsOf(st),
	}
}

// stateOf returns E2B's name of the sandbox's phase.
func stateOf(st *sandbox.State) string {
	if st.InPause() {
		return statePaused
	}
	return stateRunning
}

// details reports the actual effect of the timeout, not the requested one: on a host that
// cannot pause, the sandbox ends.
func (h *Handler) details(st *sandbox.State) (detailBody, error) {
	network, err := h.networkOf(st)
	onTimeout := sandbox.OnTimeoutKill
	if st.Request.OnTimeout != sandbox.OnTimeoutKill && st.Can.Pause {
		onTimeout = sandbox.OnTimeoutPause
	}
	return detailBody{
		listedBody: h.listed(st), EnvdAccessToken: h.token(st), Domain: h.domain(),
		AllowInternetAccess: &st.Network.Internet, Network: network, Isolation: string(st.Isolation), Warnings: st.Warnings(),
		Lifecycle: lifecycleBody{OnTimeout: onTimeout, AutoResume: st.Request.AutoResume},
	}, err
}
