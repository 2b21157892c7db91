package sandboxes

import (
	"math"
	"time"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
)

// Tokens are the tokens of a sandbox.
type Tokens interface {
	Token(id sandbox.ID) string
	TrafficToken(id sandbox.ID) string
}

// Hosts are the hosts that run sandboxes.
type Hosts interface {
	Host(name string) (fleet.Host, bool)
}

// bodies describes sandboxes as the API does.
type bodies struct {
	domain   *string // nil: none
	tokens   Tokens
	hosts    Hosts
	networks *networks
}

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

func (bs *bodies) token(st *sandbox.State) string {
	if !st.Request.Secure {
		return ""
	}
	return bs.tokens.Token(st.ID)
}

func (bs *bodies) sandbox(st *sandbox.State) sandboxBody {
	return sandboxBody{
		TemplateID: wire.TemplateID(st), SandboxID: string(st.ID), ClientID: clientID,
		EnvdVersion: wire.EnvdVersion, Alias: st.Request.Alias,
		EnvdAccessToken: bs.token(st), TrafficAccessToken: bs.trafficToken(st), Domain: bs.domain, Warnings: st.Warnings(),
	}
}

func (bs *bodies) listed(st *sandbox.State) listedBody {
	cpus, memory, disk := (st.Request.CPUMilli+999)/1000, st.Request.MemoryMiB, st.Request.DiskMiB
	if host, ok := bs.hosts.Host(st.Host); ok {
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
func (bs *bodies) details(st *sandbox.State) (detailBody, error) {
	network, err := bs.networks.body(st)
	onTimeout := sandbox.OnTimeoutKill
	if st.Request.OnTimeout != sandbox.OnTimeoutKill && st.Can.Pause {
		onTimeout = sandbox.OnTimeoutPause
	}
	return detailBody{
		listedBody: bs.listed(st), EnvdAccessToken: bs.token(st), Domain: bs.domain,
		AllowInternetAccess: &st.Network.Internet, Network: network, Isolation: string(st.Isolation), Warnings: st.Warnings(),
		Lifecycle: lifecycleBody{OnTimeout: onTimeout, AutoResume: st.Request.AutoResume},
	}, err
}

// trafficToken returns the token that clients of the sandbox's ports must send; nil: none.
func (bs *bodies) trafficToken(st *sandbox.State) *string {
	if !st.Network.Private {
		return nil
	}
	t := bs.tokens.TrafficToken(st.ID)
	return &t
}

func (bs *bodies) list(found []sandbox.State) []listedBody {
	out := make([]listedBody, len(found))
	for i := range found {
		out[i] = bs.listed(&found[i])
	}
	return out
}
