//go:build amd64 || arm64

package spawn

import (
	"encoding/binary"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A block is all the memory that a child uses. It is outside Go's heap, so that it is
// neither moved nor reused before the child is done. The assembly uses some of these
// offsets, too.
const (
	allMask   = 0   // every signal
	oldMask   = 8   // those that the forking thread blocks
	errnoAt   = 24  // why the child did not execute the program; 0: it did, or was killed
	defaultAt = 32  // a zero sigaction
	stepsAt   = 128 // the first creates the child

	stepSize  = 64 // number, six arguments, mode
	maxSteps  = 104
	stackAt   = stepsAt + maxSteps*stepSize
	stackSize = 1 << 10 // required by the kernel, not used by the child
	dataAt    = stackAt + stackSize

	wordSize  = 8
	cloneArgs = 8 * wordSize // a clone_args of the first version
)

// The required result of a step.
const (
	must  = 0 // no error
	may   = 1 // any
	equal = 2 // the first argument, for a call without arguments
)

type block struct {
	b     []byte
	steps int
	used  int
}

// spare holds a free block for the next child.
type spare struct {
	mu sync.Mutex
	k  *block
}

const spareSize = 32 << 10 // large enough for most children

// get returns a block with space for that many bytes.
func (s *spare) get(data int) (*block, error) {
	size := max(dataAt+data, spareSize)
	s.mu.Lock()
	k := s.k
	if size > spareSize {
		k = nil
	}
	if k != nil {
		s.k = nil
	}
	s.mu.Unlock()
	if k != nil {
		return k, nil
	}
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	return &block{b: b}, nil
}

// put clears a block and keeps or frees it.
func (s *spare) put(k *block) {
	k.clear()
	s.mu.Lock()
	kept := s.k == nil && len(k.b) == spareSize
	if kept {
		s.k = k
	}
	s.mu.Unlock()
	if !kept {
		unix.Munmap(k.b) //nolint:errcheck // it comes from Mmap
	}
}

// clear resets a block.
func (k *block) clear() {
	clear(k.b[:k.used])
	k.steps, k.used = 0, dataAt
	k.word(allMask, ^uint64(0))
}

func (k *block) at(offset int) uintptr { return uintptr(unsafe.Pointer(&k.b[offset])) }

func (k *block) word(offset int, v uint64) { binary.NativeEndian.PutUint64(k.b[offset:], v) }

// step adds a system call to those that the child makes.
func (k *block) step(mode uint64, number uintptr, args ...uintptr) {
	at := stepsAt + k.steps*stepSize
	k.word(at, uint64(number))
	for i, a := range args {
		k.word(at+(i+1)*wordSize, uint64(a))
	}
	k.word(at+stepSize-wordSize, mode)
	k.steps++
}

// text adds a string with a final NUL; no byte of a block is used twice.
func (k *block) text(s string) uintptr {
	at := k.used
	k.used += copy(k.b[at:], s) + 1
	return k.at(at)
}

// texts adds a list of strings with a final nil.
func (k *block) texts(list []string) uintptr {
	k.align()
	first := k.used
	k.used += (len(list) + 1) * wordSize
	for i, s := range list {
		k.word(first+i*wordSize, uint64(k.text(s)))
	}
	return k.at(first)
}

func (k *block) numbers(list []uint32) uintptr {
	k.align()
	first := k.used
	for _, n := range list {
		binary.NativeEndian.PutUint32(k.b[k.used:], n)
		k.used += 4
	}
	return k.at(first)
}

func (k *block) align() { k.used = (k.used + wordSize - 1) &^ (wordSize - 1) }

func (k *block) words(list ...uint64) uintptr {
	k.align()
	first := k.used
	for _, n := range list {
		k.word(k.used, n)
		k.used += wordSize
	}
	return k.at(first)
}

// filter adds a sock_fprog and its instructions.
func (k *block) filter(prog []bpf.RawInstruction) uintptr {
	k.align()
	first := k.used
	for _, in := range prog {
		binary.NativeEndian.PutUint16(k.b[k.used:], in.Op)
		k.b[k.used+2], k.b[k.used+3] = in.Jt, in.Jf
		binary.NativeEndian.PutUint32(k.b[k.used+4:], in.K)
		k.used += wordSize
	}
	at := k.words(0, uint64(k.at(first)))
	binary.NativeEndian.PutUint16(k.b[k.used-2*wordSize:], uint16(len(prog)))
	return at
}

// maxSize returns an upper bound of the bytes that a child needs.
func maxSize(path string, argv []string, attr *syscall.ProcAttr, restrict *Restrictions) int {
	const limits = 2 * 2 * wordSize
	const slack = 8 * wordSize // alignment, the ends of both lists, and the offset behind the last byte
	n := cloneArgs + limits + slack + len(path) + 1 + len(attr.Dir) + 1
	for _, list := range [][]string{argv, attr.Env} {
		for _, s := range list {
			n += len(s) + 1 + wordSize
		}
	}
	if attr.Sys != nil && attr.Sys.Credential != nil {
		n += len(attr.Sys.Credential.Groups) * 4
	}
	if restrict != nil {
		n += (len(restrict.Filter) + 3) * wordSize
	}
	return n
}
