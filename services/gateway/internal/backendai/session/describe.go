package session

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
)

// Keys of the metadata of sandboxes that are sessions.
const (
	metaName  = "backendai.name"
	metaImage = "backendai.image"
	metaTag   = "backendai.tag"
	// metaServices are the services besides those of every session, in JSON.
	metaServices = "backendai.services"
	metaOwner    = "backendai.owner" // access key of the request that created it
)

func missingFolder() error {
	return kind.Coded(kind.NotFound, "create session", "", NotFound, "No such virtual folder.")
}

// Metadata returns the metadata of the sandbox of a session whose template has services.
func (w *Wanted) Metadata(services []template.Service) map[string]string {
	m := map[string]string{metaName: w.Name, metaImage: w.Image, metaTag: w.Tag, metaOwner: w.Owner}
	if w.Command != "" {
		m[metaCommand] = w.Command
	}
	if w.Enqueue || w.MaxWait > 0 {
		m[metaUnwaited] = "true"
	}
	for _, port := range w.Preopen {
		services = append(slices.Clip(services), template.Service{Name: strconv.Itoa(port), Protocol: preopened, Port: port})
	}
	if len(services) > 0 {
		raw, err := json.Marshal(services)
		if err == nil { // it always is
			m[metaServices] = string(raw)
		}
	}
	return m
}

// Name returns the name of a session; empty if the sandbox is not one.
func Name(st *sandbox.State) string { return st.Request.Metadata[metaName] }

// Owner returns the access key that created a session; empty if it is unknown.
func Owner(st *sandbox.State) string { return st.Request.Metadata[metaOwner] }

// Language returns the language of a session's kernel.
func Language(st *sandbox.State) string { return LanguageOf(st.Request.Metadata[metaImage]) }

// Base returns the last element of an image's name, without its tag.
func Base(image string) string {
	image = image[strings.LastIndexByte(image, '/')+1:]
	base, _, _ := strings.Cut(image, ":")
	return base
}

// languages are the languages of kernels by what the names of images begin with, the longest first.
var languages = [...]struct{ prefix, language string }{
	{"code-interpreter", "python"}, {"python", "python"}, {"ngc-", "python"}, {"pytorch", "python"}, {"tensorflow", "python"},
	{"typescript", "typescript"}, {"javascript", "javascript"}, {"nodejs", "javascript"}, {"node", "javascript"}, {"java", "java"},
	{"r-base", "r"}, {"rstudio", "r"},
}

// LanguageOf returns the language of the kernel of an image: the shell's unless its name is that of
// another.
func LanguageOf(image string) string {
	base := strings.ToLower(Base(image))
	if base == "r" {
		return "r"
	}
	for _, l := range languages {
		if strings.HasPrefix(base, l.prefix) {
			return l.language
		}
	}
	return "bash"
}

// Status returns the status of a session.
func Status(st *sandbox.State) string {
	switch {
	case st.Phase == sandbox.PhaseStopping:
		return "TERMINATING"
	case st.Phase == sandbox.PhaseRefused || st.Phase == sandbox.PhaseDestroyed && st.Started.IsZero():
		return "CANCELLED"
	case st.Over() && st.Phase != sandbox.PhaseDestroyed:
		return "ERROR"
	case st.Over():
		return "TERMINATED"
	case st.Phase == sandbox.PhaseRequested || st.Phase == sandbox.PhaseQueued:
		return "PENDING"
	case st.Started.IsZero():
		return "PREPARING"
	}
	return "RUNNING"
}

// Created is the response to a request that creates a session, for clients of all versions.
type Created struct {
	KernelID     string `json:"kernelId"`
	SessID       string `json:"sessId"`
	SessionID    string `json:"sessionId"`
	SessionName  string `json:"sessionName"`
	Status       string `json:"status"`
	ServicePorts []Port `json:"servicePorts"`
	Created      bool   `json:"created"`
}

// Describe returns the response about a session.
func Describe(st *sandbox.State, created bool) Created {
	return Created{
		KernelID: Name(st), SessID: Name(st), SessionID: UUID(st.ID), SessionName: Name(st),
		Status: Status(st), ServicePorts: Ports(st), Created: created,
	}
}

// Info is the description of a session. Memory is in KiB, times are in milliseconds.
type Info struct {
	SessionID   string            `json:"sessionId"`
	SessionName string            `json:"sessionName"`
	Lang        string            `json:"lang"`
	Image       string            `json:"image"`
	Tag         *string           `json:"tag"`
	Age         int64             `json:"age"`
	MemoryLimit int64             `json:"memoryLimit"`
	Queries     int               `json:"numQueriesExecuted"`
	CPUUsed     int64             `json:"cpuCreditUsed"`
	Status      string            `json:"status"`
	StatusInfo  *string           `json:"statusInfo"`
	Created     string            `json:"creationTime"`
	Terminated  *string           `json:"terminationTime"`
	Environ     map[string]string `json:"environ"`
	ClusterSize int               `json:"clusterSize"`
	Ports       []Port            `json:"servicePorts"`
}

// InfoOf returns the description of a session with an environment, after a number of queries and an
// amount of CPU time.
func InfoOf(st *sandbox.State, env map[string]string, now time.Time, queries int, cpu time.Duration) Info {
	i := Info{
		SessionID: UUID(st.ID), SessionName: Name(st), Lang: st.Request.Metadata[metaImage], Image: st.Request.Metadata[metaImage],
		Age: now.Sub(st.Created).Milliseconds(), MemoryLimit: int64(st.Request.MemoryMiB) << 10, Queries: queries,
		CPUUsed: cpu.Milliseconds(), Status: Status(st), Created: st.Created.UTC().Format(time.RFC3339Nano),
		Environ: env, ClusterSize: 1, Ports: Ports(st),
	}
	if i.Environ == nil {
		i.Environ = map[string]string{}
	}
	if tag := st.Request.Metadata[metaTag]; tag != "" {
		i.Tag = &tag
	}
	if !st.Ended.IsZero() {
		ended := st.Ended.UTC().Format(time.RFC3339Nano)
		i.Terminated = &ended
	}
	return i
}
