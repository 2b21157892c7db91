//go:build linux

package microvm

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/microvm/vminit"
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
	kernel    string
	initrd    string // empty: the guest is past it
	image     string // the root; empty: none
	ram       ram
	console   bool
}

// ram says where a guest's memory is.
type ram string

const (
	ramAnonymous ram = ""          // nowhere else
	ramFrom      ram = "share=off" // begins as the file ramFd, which stays as it is
	ramIn        ram = "share=on"  // is that file
)

// The descriptors that QEMU inherits.
const (
	shimFd   = 3 // the listening socket of the serial port
	qmpFd    = 4 // the listening socket of QEMU's monitor
	memoryFd = 5 // the state to begin with
	ramFd    = 6
)

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
		"-kernel", m.kernel,
	}
	if m.ram != ramAnonymous {
		// The name is that of memory without a file, so that a snapshot fits both.
		args = append(args, "-object", fmt.Sprintf("memory-backend-file,id=pc.ram,size=%sM,mem-path=/proc/self/fd/%d,%s", memory, ramFd, m.ram))
	}
	if m.initrd != "" {
		console := ""
		if m.console {
			console = "console=ttyS0 "
		}
		args = append(args, "-initrd", m.initrd, "-append", console+"quiet panic=-1 rdinit=/"+vminit.ShimFile+" -- "+vminit.Arg)
	}
	if m.console {
		args = append(args, "-chardev", "file,id=console,path="+driver.LogFile+",append=on", "-serial", "chardev:console")
	}
	if m.image != "" {
		args = append(args,
			"-drive", "file="+strings.ReplaceAll(m.image, ",", ",,")+",format=raw,if=none,id=root,readonly=on,file.locking=off",
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
	if m.initrd == "" {
		args = append(args, "-incoming", "defer")
	}
	return args
}
