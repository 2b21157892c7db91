package frame

import (
	"encoding/json"

	"github.com/millrace/millrace/events/kind"
)

// Message is the content of a control frame. One of its fields is set.
type Message struct {
	Attach   *Attach `json:"attach,omitempty"`   // to the runtime: a client is about to be attached
	Detach   *Detach `json:"detach,omitempty"`   // to the runtime: a client is no longer attached
	Ready    *Ready  `json:"ready,omitempty"`    // from the runtime, once, before any other frame
	Attached string  `json:"attached,omitempty"` // from the runtime: the id of an Attach that took effect
	Received *string `json:"received,omitempty"` // from the runtime: a text message of a client; see Attach.Repeat
}

// Attach announces a client. Frames that follow its answer are for this client.
type Attach struct {
	ID    string `json:"id"`            // a fresh one per upgrade
	Token string `json:"token"`         // internal session token, which no client ever sees
	URL   string `json:"url,omitempty"` // address of the upgrade, without the client's token
	CUA   bool   `json:"cua"`           // whether the client may receive binary frames

	// Repeat has the runtime repeat each text message of the client before it handles it, so that
	// its record has both sides of the conversation.
	Repeat bool `json:"repeat,omitempty"`
}

// Detach names a client that is gone. A Detach of a client that another one replaced has no effect.
type Detach struct {
	ID string `json:"id"`
}

// Ready says that a runtime accepts frames.
type Ready struct {
	Port int `json:"port"` // port of the runtime on the sandbox's loopback; 0: none
}

// AppendMessage appends a control frame to dst.
func AppendMessage(dst []byte, m Message) []byte {
	payload, err := json.Marshal(m)
	if err != nil { // impossible: the type has strings, numbers and flags only
		panic(err)
	}
	return Append(dst, Control, payload)
}

// ParseMessage decodes the payload of a control frame. Fields that this version does not have are
// ignored.
func ParseMessage(payload []byte) (Message, error) {
	var m Message
	if err := json.Unmarshal(payload, &m); err != nil {
		return Message{}, kind.Wrap(kind.Invalid, "decode control frame", "", err)
	}
	return m, nil
}
