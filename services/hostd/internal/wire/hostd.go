package wire

import (
	"cmp"
	"slices"
	"time"
)

// Attach is the first frame of a connection. A shim listens to the newest
// connection with the highest epoch.
type Attach struct {
	Version uint32 // to be spoken; 0: Version
	Epoch   uint64
	Sandbox string
	Env     map[string]string // of every process of the sandbox
	Limits  Limits

	// What a shim needs that was restored from memory. Since version 3.
	Now  int64  // the host's time: Unix nanoseconds
	Seed []byte // random bytes
}

// Limits is how much a shim keeps and lets through. The zero value of a field is
// the shim's own default.
type Limits struct {
	SpoolProcess uint64        // bytes of a process that wait to be acked
	SpoolTotal   uint64        // bytes of all processes that wait to be acked
	Quota        uint64        // bytes of output a process may record; 0: no limit
	Grace        time.Duration // silence after an exit that ends a record whose pipes are still held
	GraceMax     time.Duration // the longest a record stays open after the exit

	// Since version 2. For these zero is: none, or no limit.
	Disk       uint64 // bytes of all processes that wait on the disk, above those in memory
	Rate       uint64 // bytes of output a second that are read of a process
	RateTotal  uint64 // the same, of all processes
	QuotaTotal uint64 // bytes of output that all processes may record
}

// AppendAttach appends a as a frame.
func AppendAttach(dst []byte, a *Attach) []byte {
	version := cmp.Or(a.Version, Version)
	return AppendFrame(dst, TypeAttach, func(dst []byte) []byte {
		dst = putU32(putU32(dst, magic), version)
		dst = putBytes(putU64(dst, a.Epoch), a.Sandbox)
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
		if version >= 2 {
			dst = putU64(putU64(putU64(putU64(dst, l.Disk), l.Rate), l.RateTotal), l.QuotaTotal)
		}
		if version >= 3 {
			dst = putBytes(putU64(dst, uint64(a.Now)), a.Seed)
		}
		return dst
	})
}

// ParseAttach reads what AppendAttach wrote, or of a newer version what this one
// knows; its Version is the one to be spoken. ErrMalformed also if it is another
// protocol.
func ParseAttach(b []byte) (Attach, error) {
	d := dec{b: b}
	if d.u32() != magic {
		return Attach{}, ErrMalformed
	}
	version := d.u32()
	if version == 0 {
		return Attach{}, ErrMalformed
	}
	a := Attach{Version: min(version, Version), Epoch: d.u64(), Sandbox: d.str()}
	a.Limits = Limits{SpoolProcess: d.u64(), SpoolTotal: d.u64(), Quota: d.u64(), Grace: time.Duration(d.u64()), GraceMax: time.Duration(d.u64())}
	n := d.u32()
	if d.err == nil && n > 0 {
		a.Env = make(map[string]string)
	}
	for ; n > 0 && d.err == nil; n-- {
		k := d.str()
		a.Env[k] = d.str()
	}
	if version >= 2 {
		l := &a.Limits
		l.Disk, l.Rate, l.RateTotal, l.QuotaTotal = d.u64(), d.u64(), d.u64(), d.u64()
	}
	if version >= 3 {
		a.Now, a.Seed = int64(d.u64()), d.bytes()
	}
	if version > Version {
		return a, d.err
	}
	return a, d.end()
}

// Start asks for a process. Its record has Accepted as seq 1 already.
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

// ParseStart reads what AppendStart wrote; Spec shares b's memory.
func ParseStart(b []byte) (Start, error) {
	d := dec{b: b}
	s := Start{Rev: d.u64(), Token: d.token(), Spec: d.bytes()}
	return s, d.end()
}

// Stdin is input for a process; then the end of its input if EOF.
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

// ParseStdin reads what AppendStdin wrote; Data shares b's memory.
func ParseStdin(b []byte) (Stdin, error) {
	d := dec{b: b}
	s := Stdin{Rev: d.u64(), Token: d.token(), Command: d.str(), EOF: d.u8() != 0, Data: d.bytes()}
	return s, d.end()
}

// Signal is for a process's group.
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

// ParseSignal reads what AppendSignal wrote.
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

// ParseResize reads what AppendResize wrote.
func ParseResize(b []byte) (Resize, error) {
	d := dec{b: b}
	r := Resize{Rev: d.u64(), Token: d.token(), Cols: d.u32(), Rows: d.u32()}
	return r, d.end()
}

// Mark names a place in a process's record. As a Resume it lets the shim send
// what comes after Seq; as an Ack, forget what comes up to Seq.
type Mark struct {
	Token string
	Seq   uint64
}

// AppendMark appends m as a frame of type t: TypeResume or TypeAck.
func AppendMark(dst []byte, t Type, m Mark) []byte {
	return AppendFrame(dst, t, func(dst []byte) []byte { return putU64(putToken(dst, m.Token), m.Seq) })
}

// ParseMark reads what AppendMark wrote.
func ParseMark(b []byte) (Mark, error) {
	d := dec{b: b}
	m := Mark{Token: d.token(), Seq: d.u64()}
	return m, d.end()
}

// AppendForget appends a frame that ends a process nobody may record any more.
func AppendForget(dst []byte, token string) []byte {
	return AppendFrame(dst, TypeForget, func(dst []byte) []byte { return putToken(dst, token) })
}

// ParseForget reads what AppendForget wrote.
func ParseForget(b []byte) (string, error) {
	d := dec{b: b}
	t := d.token()
	return t, d.end()
}

// AppendEnd appends a frame that ends everything in the sandbox.
func AppendEnd(dst []byte) []byte { return AppendFrame(dst, TypeEnd, nil) }

// AppendConclude appends a frame that comes after End, where that takes too long: the record
// of each process that is gone ends, and of what was not sent yet it is only told how much
// that was. Since version 7.
func AppendConclude(dst []byte) []byte { return AppendFrame(dst, TypeConclude, nil) }

// AppendReboot appends a frame that ends all processes in the sandbox before any
// that is started after it. Since version 6.
func AppendReboot(dst []byte) []byte { return AppendFrame(dst, TypeReboot, nil) }

// AppendTime appends a frame that says what time it is, in Unix nanoseconds: the sandbox
// stood still. Since version 8.
func AppendTime(dst []byte, now int64) []byte {
	return AppendFrame(dst, TypeTime, func(dst []byte) []byte { return putU64(dst, uint64(now)) })
}

// ParseTime reads what AppendTime wrote.
func ParseTime(b []byte) (int64, error) {
	d := dec{b: b}
	now := int64(d.u64())
	return now, d.end()
}

// Network says which way out the sandbox has.
type Network struct {
	Proxy uint16 // the port of the loopback that leads to hostd's proxy; 0: none

	// CA is a certificate, as PEM, that programs of the sandbox are to trust: the
	// proxy's own. Empty: none. Since version 4.
	CA []byte

	// DNS is the address of the name server of a sandbox that has an interface of
	// its own; empty: it has none. Since version 5.
	DNS string
}

// AppendNetwork appends n as a frame of the version that is spoken.
func AppendNetwork(dst []byte, version uint32, n *Network) []byte {
	return AppendFrame(dst, TypeNetwork, func(dst []byte) []byte {
		dst = putU32(dst, uint32(n.Proxy))
		if version >= 4 {
			dst = putBytes(dst, n.CA)
		}
		if version >= 5 {
			dst = putBytes(dst, n.DNS)
		}
		return dst
	})
}

// ParseNetwork reads what AppendNetwork wrote in the version that is spoken; CA
// shares b's memory.
func ParseNetwork(version uint32, b []byte) (Network, error) {
	d := dec{b: b}
	port := d.u32()
	if port > 1<<16-1 {
		return Network{}, ErrMalformed
	}
	n := Network{Proxy: uint16(port)}
	if version >= 4 {
		n.CA = d.bytes()
	}
	if version >= 5 {
		n.DNS = d.str()
	}
	return n, d.end()
}
