package wire

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
)

// Mark names a position in a process's record. As a Resume it makes the shim send the
// events after Seq; as an Ack it lets the shim forget the events up to Seq.
type Mark struct {
	Token string
	Seq   uint64
}

// AppendMark appends m as a frame of type t: TypeResume or TypeAck.
func AppendMark(dst []byte, t Type, m Mark) []byte {
	return AppendFrame(dst, t, func(dst []byte) []byte {
		return putSeq(putToken(dst, m.Token), m.Seq)
	})
}

// The positions of the fields that AppendMark writes.
const (
	atSeq   = 2 + TokenLen
	markLen = atSeq + 9
)

// hasMark reports whether b begins with the fields that AppendMark writes.
func hasMark(b []byte) bool {
	return len(b) >= markLen && b[0] == tagToken && b[1] == TokenLen && b[atSeq] == tagSeq
}

// numberAt returns the number of fixed size whose tag is at i.
func numberAt(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i+1:]) }

// ParseMark parses what AppendMark wrote. Like ParseOutput, it reads almost all by position.
func ParseMark(b []byte) (Mark, error) {
	if len(b) == markLen && hasMark(b) {
		return Mark{Token: string(b[2:atSeq]), Seq: numberAt(b, atSeq)}, nil
	}
	var m Mark
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) (err error) {
		switch num {
		case fieldToken:
			m.Token, err = tokenField(v)
		case fieldSeq:
			m.Seq = u
		}
		return err
	})
	return m, parsed(m.Token, err)
}

// AppendForget appends a frame that ends a process whose record must not be written any
// more.
func AppendForget(dst []byte, token string) []byte {
	return AppendFrame(dst, TypeForget, func(dst []byte) []byte { return putToken(dst, token) })
}

// ParseForget parses what AppendForget wrote.
func ParseForget(b []byte) (string, error) {
	m, err := ParseMark(b)
	return m.Token, err
}

// AppendEnd appends a frame that ends all processes of the sandbox.
func AppendEnd(dst []byte) []byte { return AppendFrame(dst, TypeEnd, nil) }

// AppendConclude appends a frame that follows End if that takes too long: the record of
// each ended process is concluded, and of the output that was not sent yet only the size is
// recorded.
func AppendConclude(dst []byte) []byte { return AppendFrame(dst, TypeConclude, nil) }

// AppendReboot appends a frame that ends all processes of the sandbox before any later one
// is started.
func AppendReboot(dst []byte) []byte { return AppendFrame(dst, TypeReboot, nil) }

// AppendTime appends a frame with the current time in Unix nanoseconds, after the sandbox
// was paused.
func AppendTime(dst []byte, now int64) []byte {
	return AppendFrame(dst, TypeTime, func(dst []byte) []byte { return appendNumber(dst, uint64(now)) })
}

// ParseTime parses what AppendTime wrote.
func ParseTime(b []byte) (int64, error) {
	now, err := parseNumber(b)
	return int64(now), err
}

// Network configures the egress of the sandbox.
type Network struct {
	Proxy uint16 // loopback port for hostd's proxy; 0: no proxy

	// CA is a certificate, as PEM, that programs of the sandbox should trust: the proxy's
	// own. Empty: no certificate.
	CA []byte

	// DNS is the address of the name server, if the sandbox has a network interface;
	// otherwise empty.
	DNS string
}

// AppendNetwork appends n as a frame.
func AppendNetwork(dst []byte, n *Network) []byte {
	return AppendFrame(dst, TypeNetwork, func(dst []byte) []byte {
		dst = field.AppendUint(dst, 1, uint64(n.Proxy))
		return field.AppendString(field.AppendBytes(dst, 2, n.CA), 3, n.DNS)
	})
}

// ParseNetwork parses what AppendNetwork wrote; CA shares b's memory.
func ParseNetwork(b []byte) (Network, error) {
	var n Network
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) (err error) {
		switch num {
		case 1:
			n.Proxy, err = number[uint16](u)
		case 2:
			n.CA, err = payload(v, MaxCA)
		case 3:
			n.DNS, err = text(v)
		}
		return err
	})
	if err != nil {
		return Network{}, ErrMalformed
	}
	return n, nil
}
