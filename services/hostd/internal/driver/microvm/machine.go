//go:build linux

package microvm

import (
	"fmt"
	"strconv"

	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/microvm/vminit"
)

// machine is what a guest runs on. It must be the same when its memory is loaded
// as it was when it was saved.
type machine struct {
	accel     string // "kvm" or "tcg"
	memoryMiB uint32
	cpus      uint32
	kernel    string
	initrd    string
	image     string // the root; empty: none
	console   bool
}

// boot are QEMU's arguments but for the channels.
func (m *machine) boot() []string {
	cpu := "max"
	if m.accel == "kvm" {
		cpu = "host"
	}
	console := ""
	if m.console {
		console = "console=ttyS0 "
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-M", "q35", "-accel", m.accel, "-cpu", cpu,
		"-m", strconv.FormatUint(uint64(m.memoryMiB), 10), "-smp", strconv.FormatUint(uint64(m.cpus), 10),
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-kernel", m.kernel, "-initrd", m.initrd,
		"-append", console + "quiet panic=-1 rdinit=/" + vminit.ShimFile + " -- " + vminit.Arg,
	}
	if m.console {
		args = append(args, "-chardev", "file,id=console,path="+live.LogFile+",append=on", "-serial", "chardev:console")
	}
	if m.image != "" {
		args = append(args,
			"-drive", "file="+m.image+",format=raw,if=none,id=root,readonly=on,file.locking=off",
			"-device", "virtio-blk-pci,drive=root")
	}
	return args
}

// The descriptors that QEMU inherits.
const (
	shimFd   = 3 // the listening socket of the serial port
	qmpFd    = 4 // the listening socket of QEMU's monitor
	memoryFd = 5 // the memory to begin with
)

// args are all of QEMU's arguments.
func (m *machine) args(restore bool) []string {
	args := append(m.boot(),
		"-chardev", fmt.Sprintf("socket,id=shim,fd=%d,server=on,wait=off", shimFd),
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=shim,name=millrace",
		"-chardev", fmt.Sprintf("socket,id=qmp,fd=%d,server=on,wait=off", qmpFd),
		"-mon", "chardev=qmp,mode=control")
	if restore {
		args = append(args, "-incoming", fmt.Sprintf("fd:%d", memoryFd))
	}
	return args
}
