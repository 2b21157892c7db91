//go:build linux

package microvm

import (
	"fmt"
	"strconv"

	"github.com/millrace/millrace/services/hostd/internal/driver/microvm/vminit"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

// board is the version of the virtual board that QEMU is configured with: saved memory
// requires the same board.
const board = 1

// machine is the virtual hardware of a guest. When memory is loaded it must be the same as
// when it was saved.
type machine struct {
	accel     string // "kvm" or "tcg"
	memoryMiB uint32
	cpus      uint32
	boots     bool   // has a first file system; otherwise the guest has already booted
	image     string // image of the root; empty: none
	ram       ram
	console   bool
}

// ram is where a guest's memory is stored.
type ram string

const (
	ramAnonymous ram = ""          // anonymous
	ramFrom      ram = "share=off" // starts as a private copy of the file ramFd
	ramIn        ram = "share=on"  // is the file ramFd itself
)

// Descriptors that QEMU inherits: it opens no file of the host but its own.
const (
	shimFd   = nsinit.FirstKept + iota // the listening socket of the serial port
	qmpFd                              // the listening socket of QEMU's monitor
	memoryFd                           // device state to load
	ramFd                              // readable and writable for all
	kernelFd                           // readable for all
	initrdFd                           // readable for all
	imageFd
	logFd
	endFd
)

// opened names a descriptor as a file that QEMU opens again, as if by its path: QEMU's uid
// must have the permission.
func opened(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// duplicated names a descriptor as a file that QEMU uses as it is.
func duplicated(fd int) (args []string, file string) {
	return []string{"-add-fd", fmt.Sprintf("fd=%d,set=%d", fd, fd)}, fmt.Sprintf("/dev/fdset/%d", fd)
}

// tbMiB limits QEMU's cache of translated code; its default is a gigabyte.
const tbMiB = 64

// boot returns QEMU's arguments without the channels. Each device that a guest can do
// without is omitted, since it could be used to attack QEMU.
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
		// Without this the guest would check the timer by counting loops, and not boot where
		// other processes compete for QEMU's CPU.
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

// args returns all of QEMU's arguments.
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
