package conversation

import (
	"cmp"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// Phase is the state of a conversation.
type Phase uint32

// The phases, as stored.
const (
	Starting Phase = iota + 1 // a gateway creates its sandbox
	Serving                   // its sandbox runs, and its runtime accepts clients
	Over                      // its sandbox has ended; it can be resumed
)

// Status is how a conversation is shown to clients.
type Status string

// The statuses.
const (
	Running   Status = "running"   // a client is attached
	Idle      Status = "idle"      // no client is attached
	Completed Status = "completed" // its sandbox ended by a deadline or a request
	Failed    Status = "failed"    // its sandbox was lost or could not be created
	Unknown   Status = "unknown"
)

// Terms are what a conversation was created with. A resume restores them.
type Terms struct {
	Template     string
	LLM          LLM
	Bundles      []string // names of the bundles whose values its runtime gets
	App          App
	AgentVersion string
	EndUser      string // a user of the client, without access to anything here
	Persistence  sandbox.Persistence
}

// LLM is the language model of the agent.
type LLM struct{ Vendor, Model, BaseURL string }

// App is the application of the client.
type App struct {
	ID, Set      string
	Capabilities string // JSON; empty: none
}

// Token is what the token of a client is signed from, and its address.
type Token struct {
	Issued, Expires time.Time // whole seconds
	Nonce           string
	Base            string // address for connections, part of the same result
}

// Claim is the gateway that creates the sandbox.
type Claim struct {
	Gateway string // run of the gateway
	At      time.Time
}

// Notice is an announcement to the client that is attached.
type Notice struct {
	ID        string // random; empty: there was none
	Reason    string
	Delivered bool // the client has it
}

// Config is the secrets that the runtime has.
type Config struct {
	Number      uint32            // of replacements since the sandbox serves
	Generations map[string]string // of the bundles, by name; never changed
	Keys        []string          // names of the keys of the bundles that the last replacement changed
}

// State is a conversation. It is a value: Apply returns a new one.
type State struct {
	ID         ID
	Owner      string // tenant
	Created    time.Time
	Terms      Terms
	Phase      Phase
	Generation uint32     // of Sandbox, from 1
	Sandbox    sandbox.ID // that serves it, or is created for it
	Runtime    process.ID // of its runtime; empty while Starting
	Token      Token
	Claim      Claim  // of the last start
	Previous   Status // before the last resume; empty: it was not resumed
	Served     time.Time
	Status     Status // while Over
	Ended      time.Time
	Notice     Notice
	Config     Config
	Rev        uint64 // stream sequence of the last message
}

// Body is one of Opened, Claimed, TakenOver, Served, Configured, Ended, Announced or Delivered.
//
//sumtype:decl
type Body interface{ kind() string }

// Opened is the first event: a client created the conversation.
type Opened struct {
	Owner   string
	Terms   Terms
	Sandbox sandbox.ID
	Token   Token
	Gateway string
}

// Claimed reports that a gateway resumes the conversation with a new sandbox.
type Claimed struct {
	Sandbox  sandbox.ID
	Token    Token
	Gateway  string
	Previous Status
}

// TakenOver reports that a gateway continues, for a resume, the start of another one that has died.
type TakenOver struct {
	Gateway  string
	Previous Status // before the resume, if the start was the first one
}

// Served reports that the sandbox runs and the runtime accepts clients.
type Served struct {
	Runtime     process.ID
	Generations map[string]string // of the bundles whose values the runtime has, by name
}

// Configured reports that the runtime has other secrets.
type Configured struct {
	Generations map[string]string
	Keys        []string // names of the keys of the bundles that changed
}

// Ended reports that the sandbox has ended.
type Ended struct{ Status Status }

// Announced asks the gateway of the client to send it an announcement.
type Announced struct{ ID, Reason string }

// Delivered reports that the client has the announcement.
type Delivered struct{ ID string }

func (Opened) kind() string     { return "opened" }
func (Claimed) kind() string    { return "claimed" }
func (TakenOver) kind() string  { return "taken_over" }
func (Served) kind() string     { return "served" }
func (Configured) kind() string { return "configured" }
func (Ended) kind() string      { return "ended" }
func (Announced) kind() string  { return "announced" }
func (Delivered) kind() string  { return "delivered" }

// next is what can happen; an absent pair cannot.
var next = map[Phase]map[string]Phase{
	0:        {"opened": Starting},
	Starting: {"served": Serving, "ended": Over, "taken_over": Starting},
	Serving:  {"claimed": Starting, "configured": Serving, "ended": Over, "announced": Serving, "delivered": Serving},
	Over:     {"claimed": Starting},
}

// Apply returns the conversation after b, or an Invalid error if b cannot happen.
func (s State) Apply(b Body, now time.Time) (State, error) {
	to, ok := next[s.Phase][b.kind()]
	if d, is := b.(Delivered); is && d.ID != s.Notice.ID {
		ok = false // another announcement replaced it
	}
	if !ok {
		return s, kind.Newf(kind.Invalid, "apply", string(s.ID), "%s in phase %d", b.kind(), s.Phase)
	}
	s.Phase = to
	switch b := b.(type) {
	case Opened:
		s.Owner, s.Terms, s.Created = b.Owner, b.Terms, now
		s.start(b.Sandbox, b.Token, Claim{b.Gateway, now})
	case Claimed:
		s.start(b.Sandbox, b.Token, Claim{b.Gateway, now})
		s.Previous = b.Previous
	case TakenOver:
		s.Claim, s.Previous = Claim{b.Gateway, now}, cmp.Or(s.Previous, b.Previous)
	case Served:
		s.Runtime, s.Served, s.Config = b.Runtime, now, Config{Generations: b.Generations}
	case Configured:
		s.Config = Config{s.Config.Number + 1, b.Generations, b.Keys}
	case Ended:
		s.Status, s.Ended = b.Status, now
	case Announced:
		s.Notice = Notice{ID: b.ID, Reason: b.Reason}
	case Delivered:
		s.Notice.Delivered = true
	}
	return s, nil
}

// start begins the next generation.
func (s *State) start(sbx sandbox.ID, t Token, by Claim) {
	s.Generation++
	s.Sandbox, s.Token, s.Claim = sbx, t, by
	s.Runtime, s.Served, s.Status, s.Ended, s.Notice, s.Config = "", time.Time{}, "", time.Time{}, Notice{}, Config{}
}

// Window is how long a resume that follows another one has the same result.
const Window = 30 * time.Second

// Repeats reports whether a resume at now has the result of the last one. The window ends with the sandbox.
func (s *State) Repeats(now time.Time) bool {
	return s.Phase == Serving && s.Previous != "" && now.Sub(s.Served) < Window
}

// Keep is how long a conversation is kept after the end of its last sandbox.
const Keep = 30 * 24 * time.Hour
