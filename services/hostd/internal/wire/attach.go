package wire

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
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
		dst = putVersion(dst)
		dst = field.AppendUint(dst, 1, a.Epoch)
		dst = field.AppendString(dst, 2, a.Sandbox)
		for _, k := range slices.Sorted(maps.Keys(a.Env)) {
			dst = field.PutMessage(dst, 3, func(dst []byte) []byte {
				return field.AppendString(field.AppendString(dst, 1, k), 2, a.Env[k])
			})
		}
		dst = field.PutMessage(dst, 4, a.Limits.append)
		dst = field.AppendUint(dst, 5, uint64(a.Now))
		return field.AppendBytes(dst, 6, a.Seed)
	})
}

// ParseAttach parses what AppendAttach wrote. ErrMalformed also reports another protocol.
func ParseAttach(b []byte) (Attach, error) {
	b, err := cutVersion(b)
	if err != nil {
		return Attach{}, err
	}
	var a Attach
	err = field.Each(b, func(num protowire.Number, u uint64, v []byte) (err error) {
		switch num {
		case 1:
			a.Epoch = u
		case 2:
			a.Sandbox, err = text(v)
		case 3:
			err = a.parseEnv(v)
		case 4:
			a.Limits, err = parseLimits(v)
		case 5:
			a.Now = int64(u)
		case 6:
			a.Seed, err = payload(v, MaxText)
		}
		return err
	})
	if err != nil {
		return Attach{}, ErrMalformed
	}
	return a, nil
}

// parseEnv adds one variable.
func (a *Attach) parseEnv(b []byte) error {
	var k, v string
	err := field.Each(b, func(num protowire.Number, _ uint64, val []byte) error {
		switch num {
		case 1:
			k = string(val)
		case 2:
			v = string(val)
		}
		return nil
	})
	if a.Env == nil {
		a.Env = make(map[string]string)
	}
	a.Env[k] = v
	return err
}

func (l *Limits) append(dst []byte) []byte {
	dst = field.AppendUint(dst, 1, l.SpoolProcess)
	dst = field.AppendUint(dst, 2, l.SpoolTotal)
	dst = field.AppendUint(dst, 3, l.Quota)
	dst = field.AppendUint(dst, 4, uint64(l.Grace))
	dst = field.AppendUint(dst, 5, uint64(l.GraceMax))
	dst = field.AppendUint(dst, 6, l.Disk)
	dst = field.AppendUint(dst, 7, l.Rate)
	dst = field.AppendUint(dst, 8, l.RateTotal)
	return field.AppendUint(dst, 9, l.QuotaTotal)
}

func parseLimits(b []byte) (Limits, error) {
	var l Limits
	err := field.Each(b, func(num protowire.Number, u uint64, _ []byte) error {
		switch num {
		case 1:
			l.SpoolProcess = u
		case 2:
			l.SpoolTotal = u
		case 3:
			l.Quota = u
		case 4:
			l.Grace = time.Duration(u)
		case 5:
			l.GraceMax = time.Duration(u)
		case 6:
			l.Disk = u
		case 7:
			l.Rate = u
		case 8:
			l.RateTotal = u
		case 9:
			l.QuotaTotal = u
		}
		return nil
	})
	return l, err
}
