package protocol

import (
	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
)

// State is the state of a connection.
type State uint8

// The states, in order.
const (
	StateNew      State = iota // nothing but initialize is allowed
	StateAnswered              // initialize was answered with a session
	StateReady                 // the client sent initialized
	StateClosed                // the connection must be closed
)

// Input is what a message of the client is, for the state of its connection.
type Input uint8

// The inputs.
const (
	InputInitialize   Input = iota // a request of initialize with valid parameters
	InputInitialized               // the notification
	InputCall                      // a request of an offered method with valid parameters
	InputNotOffered                // a request of a released method that is not offered
	InputUnknown                   // a request of a method that no release had
	InputNotification              // any other notification
	InputResponse                  // a response: the server sends no requests
	InputMalformed                 // not a message
	inputs
)

// Action is what the server does with a message.
type Action uint8

// The actions.
const (
	Run         Action = iota // handle it and answer; a successful initialize moves the state ([State.Attached])
	Skip                      // nothing
	Refuse                    // answer with an invalid request that names the missing step
	RefuseTwice               // answer with an invalid request: initialize was sent before
	NoMethod                  // answer with an unknown method
	NotKnown                  // answer with an invalid request: the method does not exist
	BadMessage                // answer with an invalid request and the id -1
	Close                     // answer with an invalid request and the id -1, then close
)

// step is an entry of the table.
type step struct {
	action Action
	next   State
}

// table is the whole state machine. A closed connection reads nothing more.
var table = [StateClosed][inputs]step{
	StateNew: {
		InputInitialize:   {Run, StateNew},
		InputInitialized:  {Close, StateClosed},
		InputCall:         {Refuse, StateNew},
		InputNotOffered:   {NoMethod, StateNew},
		InputUnknown:      {NotKnown, StateNew},
		InputNotification: {Close, StateClosed},
		InputResponse:     {Close, StateClosed},
		InputMalformed:    {BadMessage, StateNew},
	},
	StateAnswered: {
		InputInitialize:   {RefuseTwice, StateAnswered},
		InputInitialized:  {Skip, StateReady},
		InputCall:         {Refuse, StateAnswered},
		InputNotOffered:   {NoMethod, StateAnswered},
		InputUnknown:      {NotKnown, StateAnswered},
		InputNotification: {Close, StateClosed},
		InputResponse:     {Close, StateClosed},
		InputMalformed:    {BadMessage, StateAnswered},
	},
	StateReady: {
		InputInitialize:   {RefuseTwice, StateReady},
		InputInitialized:  {Skip, StateReady},
		InputCall:         {Run, StateReady},
		InputNotOffered:   {NoMethod, StateReady},
		InputUnknown:      {NotKnown, StateReady},
		InputNotification: {Close, StateClosed},
		InputResponse:     {Close, StateClosed},
		InputMalformed:    {BadMessage, StateReady},
	},
}

// On returns what the server does with a message, and the state after it.
func (s State) On(in Input) (Action, State) {
	if s >= StateClosed {
		return Skip, StateClosed
	}
	at := table[s][in]
	return at.action, at.next
}

// Attached returns the state after a successful initialize.
func (s State) Attached() State { return max(s, StateAnswered) }

// Classify returns the input that a message is. method is valid for a request of a release's
// method. It does not check parameters.
func Classify(m *jsonrpc.Message) (in Input, method Method) {
	switch m.Kind {
	case jsonrpc.Response:
		return InputResponse, Method{}
	case jsonrpc.Notification:
		if m.Method == Initialized {
			return InputInitialized, Method{}
		}
		return InputNotification, Method{}
	case jsonrpc.Request:
	}
	method, known := Lookup(m.Method)
	switch {
	case !known:
		return InputUnknown, Method{}
	case method.Name == Initialize:
		return InputInitialize, method
	case !method.Offered:
		return InputNotOffered, method
	}
	return InputCall, method
}

// Refusal returns the error of an action that refuses a message; nil for the others.
func (s State) Refusal(a Action, m *jsonrpc.Message, method Method) *jsonrpc.Error {
	invalid := func(text string) *jsonrpc.Error {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: text}
	}
	switch a {
	case Refuse:
		if s == StateNew {
			return invalid("client must call initialize before using " + method.Group + " methods")
		}
		return invalid("client must send initialized before using " + method.Group + " methods")
	case RefuseTwice:
		return invalid("initialize may only be sent once per connection")
	case NotKnown:
		return invalid("unknown method: " + clip(m.Method))
	case NoMethod:
		return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method " + method.Name + " is not offered"}
	case Close:
		if m.Kind == jsonrpc.Response {
			return invalid("the server sent no request with this id")
		}
		if m.Method == Initialized {
			return invalid("initialized was sent before initialize")
		}
		return invalid("unexpected notification: " + clip(m.Method))
	case BadMessage, Run, Skip:
	}
	return nil
}

const maxShown = 64

// clip shortens a text of the client for an error.
func clip(s string) string {
	if len(s) > maxShown {
		return s[:maxShown] + "..."
	}
	return s
}
