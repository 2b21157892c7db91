package account

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// The rules for codes.
const (
	CodeLifetime = 10 * time.Minute
	MaxWrong     = 5
	MaxCodes     = 3         // codes that are sent to an address in a CodePeriod
	CodePeriod   = time.Hour // see MaxCodes
)

// Code is a code that was sent, without the code itself.
type Code struct {
	Nonce string // random, part of the hashed text
	Hash  string
	Sent  time.Time
	Wrong int // wrong attempts
}

// State is the account of an address.
type State struct {
	Address Address
	Tenant  string      // empty: the address has not been verified
	Created time.Time   // when it was verified first
	Code    Code        // the valid code; the zero value: none is valid
	Sent    []time.Time // times of the codes that count against MaxCodes, oldest first
	Rev     uint64      // stream sequence, which the next change must expect
	Changed time.Time   // when it was stored
}

// Phase is what an account waits for.
type Phase uint8

// The phases.
const (
	Idle    Phase = iota // no code can be entered
	Waiting              // a code was sent
)

// Phase returns the account's phase. The code of an account that waits may have expired; see
// [State.Live].
func (s *State) Phase() Phase {
	if s.Code.Hash == "" {
		return Idle
	}
	return Waiting
}

// Body is one of Requested, Undelivered, Missed or Verified.
//
//sumtype:decl
type Body interface {
	Kind() string
	apply(s *State)
}

// Requested says that a code was made. It replaces the previous one.
type Requested struct {
	Address Address
	Code    Code
}

// Undelivered says that a code could not be sent: it is not valid, and does not count.
type Undelivered struct{ Nonce string }

// Missed says that a wrong code was entered.
type Missed struct{}

// Verified says that the right code was entered.
type Verified struct {
	Tenant string // of a new account; ignored if the account has one
	At     time.Time
}

// Kind returns the name of the event.
func (Requested) Kind() string { return "requested" }

// Kind returns the name of the event.
func (Undelivered) Kind() string { return "undelivered" }

// Kind returns the name of the event.
func (Missed) Kind() string { return "missed" }

// Kind returns the name of the event.
func (Verified) Kind() string { return "verified" }

// possible are the events that can happen in each phase.
var possible = map[Phase]map[string]bool{
	Idle:    {"requested": true},
	Waiting: {"requested": true, "undelivered": true, "missed": true, "verified": true},
}

// Apply returns the state after an event. It returns Invalid if the event cannot happen.
func (s *State) Apply(b Body) (State, error) {
	if u, ok := b.(Undelivered); !possible[s.Phase()][b.Kind()] || ok && u.Nonce != s.Code.Nonce {
		return *s, &kind.Error{Op: "apply", ID: string(s.Address.ID()), Kind: kind.Invalid, Err: fmt.Errorf("%s in phase %d", b.Kind(), s.Phase())}
	}
	out := *s
	b.apply(&out)
	return out, nil
}

func (e Requested) apply(s *State) {
	s.Address, s.Code = e.Address, e.Code
	s.Sent = append(recent(s.Sent, e.Code.Sent, CodePeriod), e.Code.Sent)
}

func (Undelivered) apply(s *State) {
	s.Sent = s.Sent[:max(0, len(s.Sent)-1)] // that of the valid code is the last one
	s.Code = Code{}
}

func (Missed) apply(s *State) {
	if s.Code.Wrong++; s.Code.Wrong >= MaxWrong {
		s.Code = Code{}
	}
}

func (e Verified) apply(s *State) {
	if s.Tenant == "" {
		s.Tenant, s.Created = e.Tenant, e.At
	}
	s.Code = Code{}
}

// Wait returns how long the account must wait for another code; 0: it may have one now.
func (s *State) Wait(now time.Time) time.Duration {
	_, wait := Admit(s.Sent, now, MaxCodes, CodePeriod)
	return wait
}

// Live reports whether a code can be entered.
func (s *State) Live(now time.Time) bool {
	return s.Phase() == Waiting && now.Sub(s.Code.Sent) < CodeLifetime
}

// Abandoned reports whether the account can be forgotten: it was never verified, and its codes
// do not count any more.
func (s *State) Abandoned(now time.Time) bool {
	return s.Tenant == "" && len(recent(s.Sent, now, CodePeriod)) == 0
}

const tenantBytes = 16

// NewTenant returns a new random tenant.
func NewTenant() string {
	raw := make([]byte, tenantBytes)
	rand.Read(raw)
	return "usr_" + hex.EncodeToString(raw)
}
