//go:build linux

package microvm

import (
	"fmt"
	"strconv"

	"github.com/millrace/millrace/services/hostd/internal/driver/microvm/vminit"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

// board counts the boards that QEMU was told to build: memory fits the one that it
// was saved on.
const board = 2

// machine is what a guest runs on. It must be the same when its memory is loaded
// as it was when it was saved.
type machine struct {
	accel     string // "kvm" or "tcg"
	memoryMiB uint32
	cpus      uint32
	boots     bool   // it has a first file system; else the guest is past it
	image     string // the root; empty: none
	ram       ram
	console   bool
	tells     bool // its guest tells its files to who dials aside
}

// ram says where a guest's memory is.
type ram string

const (
	ramAnonymous ram = ""          // nowhere else
	ramFrom      ram = "share=off" // begins as the file ramFd, which stays as it is
	ramIn        ram = "share=on"  // is that file
)

// The descriptors that QEMU inherits: it opens no file of the host's but its own.
const (
	shimFd   = nsinit.FirstKept + iota // the listening socket of the serial port
	qmpFd                              // the listening socket of QEMU's monitor
	memoryFd                           // the state to begin with
	ramFd                              // which all may read and write
	kernelFd                           // which all may read
	initrdFd                           // which all may read
	imageFd
	logFd
	endFd
)

// opened names a descriptor as a file that QEMU opens anew: as if by its path, so that
// its uid must have the right to.
func opened(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// duplicated names a descriptor as a file that QEMU uses as it is.
func duplicated(fd int) (args []string, file string) {
	return []string{"-add-fd", fmt.Sprintf("fd=%d,set=%d", fd, fd)}, fmt.Sprintf("/dev/fdset/%d", fd)
}

// tbMiB bounds what QEMU keeps of translated code; by itself it takes a gigabyte.
const tbMiB = 64

// boot are QEMU's arguments but for the channels. Each device of the board that a
// guest can do without is one less to attack QEMU by.
func (m *machine) boot() []string {
	cpu, accel := "max", fmt.Sprintf("tcg,tb-size=%d", tbMiB)
	if m.accel == "kvm" {
		cpu, accel = "host", "kvm"
	}
	shape := "q35,sata=off,smbus=off,usb=off,vmport=off,graphics=off"
	if m.ram != ramAnonymous {
		shape += ",memory-backend=pc.ram"
	}
	memory := strconv.FormatUint(uint64(m.memoryMiB), 10)
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-M", shape, "-accel", accel, "-cpu", cpu,
		"-m", memory, "-smp", strconv.FormatUint(uint64(m.cpus), 10),
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-kernel", opened(kernelFd),
	}
	if m.ram != ramAnonymous {
		// The name is that of memory without a file, so that a snapshot fits both.
		args = append(args, "-object", fmt.Sprintf("memory-backend-file,id=pc.ram,size=%sM,mem-path=%s,%s", memory, opened(ramFd), m.ram))
	}
	if m.boots {
		console := ""
		if m.console {
			console = "console=ttyS0 "
		}
		// Whether the timer works the guest would find out by counting loops, and not boot where
		// others take QEMU's CPU meanwhile.
		args = append(args, "-initrd", opened(initrdFd), "-append", console+"quiet panic=-1 no_timer_check rdinit=/"+vminit.ShimFile+" -- "+vminit.Arg)
	}
	if m.console {
		add, file := duplicated(logFd)
		args = append(append(args, add...), "-chardev", "file,id=console,path="+file+",append=on", "-serial", "chardev:console")
	}
	if m.image != "" {
		add, file := duplicated(imageFd)
		args = append(append(args, add...),
			"-drive", "file="+file+",format=raw,if=none,id=root,readonly=on,file.locking=off",
			"-device", "virtio-blk-pci,drive=root")
	}
	return args
}

// args are all of QEMU's arguments.
func (m *machine) args() []string {
	args := append(m.boot(),
		"-chardev", fmt.Sprintf("socket,id=shim,fd=%d,server=on,wait=off", shimFd),
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=shim,name=millrace",
		"-chardev", fmt.Sprintf("socket,id=qmp,fd=%d,server=on,wait=off", qmpFd),
		"-mon", "chardev=qmp,mode=control")
	if !m.boots {
		args = append(args, "-incoming", "defer")
	}
	return args
}
