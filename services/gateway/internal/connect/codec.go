package connect

import (
	"mime"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// The content types of the Connect protocol.
const (
	typeJSON        = "application/json"
	typeProto       = "application/proto"
	typeStreamJSON  = "application/connect+json"
	typeStreamProto = "application/connect+proto"
)

// format is how the messages of a request and its response are encoded.
type format struct {
	binary    bool // protobuf, otherwise JSON
	enveloped bool
}

// formatOf parses a content type; its parameters are ignored.
func formatOf(contentType string) (format, bool) {
	t, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return format{}, false
	}
	switch t {
	case typeJSON:
		return format{}, true
	case typeProto:
		return format{binary: true}, true
	case typeStreamJSON:
		return format{enveloped: true}, true
	case typeStreamProto:
		return format{binary: true, enveloped: true}, true
	}
	return format{}, false
}

// unaryType and streamType return the content types of responses.
func (f format) unaryType() string {
	if f.binary {
		return typeProto
	}
	return typeJSON
}

func (f format) streamType() string {
	if f.binary {
		return typeStreamProto
	}
	return typeStreamJSON
}

// decode decodes one message. Unknown fields are skipped; an empty JSON body is an
// empty message.
func (f format) decode(raw []byte, m proto.Message) error {
	var err error
	switch {
	case f.binary:
		err = proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, m)
	case len(raw) > 0:
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, m)
	}
	if err != nil {
		return fail(CodeInvalid, "unmarshal message: %v", err)
	}
	return nil
}

func (f format) append(dst []byte, m proto.Message) ([]byte, error) {
	if f.binary {
		return proto.MarshalOptions{}.MarshalAppend(dst, m)
	}
	return protojson.MarshalOptions{}.MarshalAppend(dst, m)
}
