package wire

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
)

// Output is a process.Wrote: the hot frame. Its data is never copied by the shim, so its
// head is written separately.
type Output struct {
	Token  string
	Seq    uint64
	Time   int64 // Unix nanoseconds
	Stream uint8
	Offset uint64
	Data   []byte
}

// The tags of an Output's fields. The numbers in its head have a fixed size, so that the head
// has, too.
const (
	tagTime   = 3<<3 | byte(protowire.Fixed64Type)
	tagOffset = 4<<3 | byte(protowire.Fixed64Type)
	tagStream = 5<<3 | byte(protowire.VarintType)
	tagData   = 6<<3 | byte(protowire.BytesType)
)

// The positions of the fields in the head that AppendOutputHead writes.
const (
	atTime   = markLen
	atOffset = atTime + 9
	atStream = atOffset + 9
	atData   = atStream + 2
)

// AppendOutputHead appends o's frame without the data, which must follow. The token has its
// fixed length.
func AppendOutputHead(dst []byte, o *Output) []byte {
	var head [headLen + atData + 1]byte
	head[4] = byte(TypeOutput)
	b := head[headLen:]
	b[0], b[1] = tagToken, TokenLen
	copy(b[2:atSeq], o.Token)
	putNumber(b[atSeq:], tagSeq, o.Seq)
	putNumber(b[atTime:], tagTime, uint64(o.Time))
	putNumber(b[atOffset:], tagOffset, o.Offset)
	b[atStream], b[atStream+1], b[atData] = tagStream, o.Stream, tagData
	start := len(dst)
	dst = protowire.AppendVarint(append(dst, head[:]...), uint64(len(o.Data)))
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start-headLen+len(o.Data)))
	return dst
}

func putNumber(b []byte, tag byte, v uint64) {
	b[0] = tag
	binary.LittleEndian.PutUint64(b[1:], v)
}

// maxOutputHead is the maximum size of an output frame besides its data. The data keeps the
// whole frame in memory, but is accounted by its own length.
const maxOutputHead = 256

// ParseOutput parses an output frame; Data shares b's memory. A frame with exactly the fields
// that AppendOutputHead writes, which is almost every one, is read by position to save time.
func ParseOutput(b []byte) (Output, error) {
	if !hasMark(b) || len(b) <= atData || b[atTime] != tagTime || b[atOffset] != tagOffset || b[atStream] != tagStream || b[atData] != tagData {
		return parseOutput(b)
	}
	size, n := protowire.ConsumeVarint(b[atData+1:])
	if n < 0 || size > MaxData || atData+1+n+int(size) != len(b) || b[atStream+1] >= 0x80 {
		return parseOutput(b)
	}
	return Output{
		Token: string(b[2:atSeq]), Seq: numberAt(b, atSeq), Time: int64(numberAt(b, atTime)), Offset: numberAt(b, atOffset),
		Stream: b[atStream+1], Data: b[len(b)-int(size) : len(b) : len(b)],
	}, nil
}

// parseOutput parses an output frame with its fields in any order.
func parseOutput(b []byte) (Output, error) {
	var o Output
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) (err error) {
		switch num {
		case fieldToken:
			o.Token, err = tokenField(v)
		case fieldSeq:
			o.Seq = u
		case 3:
			o.Time = int64(u)
		case 4:
			o.Offset = u
		case 5:
			o.Stream, err = number[uint8](u)
		case 6:
			o.Data, err = payload(v, MaxData)
		}
		return err
	})
	if len(b)-len(o.Data) > maxOutputHead {
		return Output{}, ErrMalformed
	}
	return o, parsed(o.Token, err)
}

// Event is any other event of a process.
type Event struct {
	Token string
	Seq   uint64
	Event []byte // process.AppendEvent
}

// AppendEvent appends a frame for the event whose bytes f appends.
func AppendEvent(dst []byte, token string, seq uint64, f func([]byte) []byte) []byte {
	return AppendFrame(dst, TypeEvent, func(dst []byte) []byte {
		return field.PutMessage(putSeq(putToken(dst, token), seq), 3, f)
	})
}

// ParseEvent parses what AppendEvent wrote; Event shares b's memory.
func ParseEvent(b []byte) (Event, error) {
	var e Event
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) (err error) {
		switch num {
		case fieldToken:
			e.Token, err = tokenField(v)
		case fieldSeq:
			e.Seq = u
		case 3:
			e.Event, err = payload(v, MaxEvent)
		}
		return err
	})
	return e, parsed(e.Token, err)
}
