package wire

import (
	"slices"
	"time"
)

// Attach is the first frame of a connection. A shim uses the newest connection with the
// highest epoch.
type Attach struct {
	Epoch   uint64
	Sandbox string
	Env     map[string]string // of every process of the sandbox
	Limits  Limits

	// For a shim that was restored from memory.
	Now  int64  // the host's time: Unix nanoseconds
	Seed []byte // random bytes
}

// Limits bounds what a shim keeps and lets through. The zero value of a field is the shim's
// default.
type Limits struct {
	SpoolProcess uint64        // bytes of a process that wait for Ack
	SpoolTotal   uint64        // bytes of all processes that wait for Ack
	Quota        uint64        // bytes of output a process may record; 0: no limit
	Grace        time.Duration // silence after an exit that ends a record whose pipes are still open
	GraceMax     time.Duration // the longest a record stays open after the exit

	// Zero means none, or no limit.
	Disk       uint64 // bytes of all processes that wait on disk, in addition to memory
	Rate       uint64 // bytes of output per second that are read of a process
	RateTotal  uint64 // the same for all processes
	QuotaTotal uint64 // bytes of output that all processes together may record
}

// AppendAttach appends a as a frame.
func AppendAttach(dst []byte, a *Attach) []byte {
	return AppendFrame(dst, TypeAttach, func(dst []byte) []byte {
		dst = putBytes(putU64(putVersion(dst), a.Epoch), a.Sandbox)
		l := &a.Limits
		dst = putU64(putU64(putU64(dst, l.SpoolProcess), l.SpoolTotal), l.Quota)
		dst = putU64(putU64(dst, uint64(l.Grace)), uint64(l.GraceMax))
		keys := make([]string, 0, len(a.Env))
		for k := range a.Env {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		dst = putU32(dst, uint32(len(keys)))
		for _, k := range keys {
			dst = putBytes(putBytes(dst, k), a.Env[k])
		}
		dst = putU64(putU64(putU64(putU64(dst, l.Disk), l.Rate), l.RateTotal), l.QuotaTotal)
		return putBytes(putU64(dst, uint64(a.Now)), a.Seed)
	})
}

// ParseAttach parses what AppendAttach wrote. ErrMalformed also reports another protocol.
func ParseAttach(b []byte) (Attach, error) {
	d := dec{b: b}
	if err := d.version(); err != nil {
		return Attach{}, err
	}
	a := Attach{Epoch: d.u64(), Sandbox: d.str()}
	a.Limits = Limits{SpoolProcess: d.u64(), SpoolTotal: d.u64(), Quota: d.u64(), Grace: time.Duration(d.u64()), GraceMax: time.Duration(d.u64())}
	n := d.u32()
	if d.err == nil && n > 0 {
		a.Env = make(map[string]string)
	}
	for ; n > 0 && d.err == nil; n-- {
		k := d.str()
		a.Env[k] = d.str()
	}
	l := &a.Limits
	l.Disk, l.Rate, l.RateTotal, l.QuotaTotal = d.u64(), d.u64(), d.u64(), d.u64()
	a.Now, a.Seed = int64(d.u64()), d.bytes()
	return a, d.end()
}

// Start starts a process. Its record already has Accepted as seq 1.
type Start struct {
	Rev   uint64
	Token string
	Spec  []byte // process.AppendSpec
}

// AppendStart appends s as a frame.
func AppendStart(dst []byte, s *Start) []byte {
	return AppendFrame(dst, TypeStart, func(dst []byte) []byte {
		return putBytes(putToken(putU64(dst, s.Rev), s.Token), s.Spec)
	})
}

// ParseStart parses what AppendStart wrote; Spec shares b's memory.
func ParseStart(b []byte) (Start, error) {
	d := dec{b: b}
	s := Start{Rev: d.u64(), Token: d.token(), Spec: d.bytes()}
	return s, d.end()
}

// Stdin is input for a process, followed by EOF if set.
type Stdin struct {
	Rev     uint64
	Token   string
	Command string
	EOF     bool
	Data    []byte
}

// AppendStdin appends s as a frame.
func AppendStdin(dst []byte, s *Stdin) []byte {
	return AppendFrame(dst, TypeStdin, func(dst []byte) []byte {
		dst = putBytes(putToken(putU64(dst, s.Rev), s.Token), s.Command)
		return putBytes(putBool(dst, s.EOF), s.Data)
	})
}

// ParseStdin parses what AppendStdin wrote; Data shares b's memory.
func ParseStdin(b []byte) (Stdin, error) {
	d := dec{b: b}
	s := Stdin{Rev: d.u64(), Token: d.token(), Command: d.str(), EOF: d.u8() != 0, Data: d.bytes()}
	return s, d.end()
}

// Signal sends a signal to a process group.
type Signal struct {
	Rev     uint64
	Token   string
	Command string
	Signal  int32
}

// AppendSignal appends s as a frame.
func AppendSignal(dst []byte, s *Signal) []byte {
	return AppendFrame(dst, TypeSignal, func(dst []byte) []byte {
		return putU32(putBytes(putToken(putU64(dst, s.Rev), s.Token), s.Command), uint32(s.Signal))
	})
}

// ParseSignal parses what AppendSignal wrote.
func ParseSignal(b []byte) (Signal, error) {
	d := dec{b: b}
	s := Signal{Rev: d.u64(), Token: d.token(), Command: d.str(), Signal: int32(d.u32())}
	return s, d.end()
}

// Resize sets the size of a process's terminal.
type Resize struct {
	Rev        uint64
	Token      string
	Cols, Rows uint32
}

// AppendResize appends r as a frame.
func AppendResize(dst []byte, r *Resize) []byte {
	return AppendFrame(dst, TypeResize, func(dst []byte) []byte {
		return putU32(putU32(putToken(putU64(dst, r.Rev), r.Token), r.Cols), r.Rows)
	})
}

// ParseResize parses what AppendResize wrote.
func ParseResize(b []byte) (Resize, error) {
	d := dec{b: b}
	r := Resize{Rev: d.u64(), Token: d.token(), Cols: d.u32(), Rows: d.u32()}
	return r, d.end()
}

// Mark names a position in a process's record. As a Resume it makes the shim send the
// events after Seq; as an Ack it lets the shim forget the events up to Seq.
type Mark struct {
	Token string
	Seq   uint64
}

// AppendMark appends m as a frame of type t: TypeResume or TypeAck.
func AppendMark(dst []byte, t Type, m Mark) []byte {
	return AppendFrame(dst, t, func(dst []byte) []byte { return putU64(putToken(dst, m.Token), m.Seq) })
}

// ParseMark parses what AppendMark wrote.
func ParseMark(b []byte) (Mark, error) {
	d := dec{b: b}
	m := Mark{Token: d.token(), Seq: d.u64()}
	return m, d.end()
}

// AppendForget appends a frame that ends a process whose record must not be written any
// more.
func AppendForget(dst []byte, token string) []byte {
	return AppendFrame(dst, TypeForget, func(dst []byte) []byte { return putToken(dst, token) })
}

// ParseForget parses what AppendForget wrote.
func ParseForget(b []byte) (string, error) {
	d := dec{b: b}
	t := d.token()
	return t, d.end()
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
	return AppendFrame(dst, TypeTime, func(dst []byte) []byte { return putU64(dst, uint64(now)) })
}

// ParseTime parses what AppendTime wrote.
func ParseTime(b []byte) (int64, error) {
	d := dec{b: b}
	now := int64(d.u64())
	return now, d.end()
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
		return putBytes(putBytes(putU32(dst, uint32(n.Proxy)), n.CA), n.DNS)
	})
}

// ParseNetwork parses what AppendNetwork wrote; CA shares b's memory.
func ParseNetwork(b []byte) (Network, error) {
	d := dec{b: b}
	port := d.u32()
	if port > 1<<16-1 {
		return Network{}, ErrMalformed
	}
	n := Network{Proxy: uint16(port), CA: d.bytes(), DNS: d.str()}
	return n, d.end()
}
