// Package filters has the system call filters that gVisor's processes put on
// themselves, compiled: otherwise each of them compiles its own whenever a sandbox is
// made, which is a sixth of the CPU time that takes.
//
// They are those of gVisor's own rules, for one version of it, and for what the driver
// asks of it. gVisor compiles any other itself.
package filters

import (
	"runtime/debug"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	boot "gvisor.dev/gvisor/runsc/boot/filter"
	gofer "gvisor.dev/gvisor/runsc/fsgofer/filter"
)

// gVisor's module comes without the table that its own build writes, and has no call
// to fill it.

//go:linkname bootTable gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var bootTable map[string]precompiledseccomp.Program

//go:linkname goferTable gvisor.dev/gvisor/runsc/fsgofer/filter.precompiledPrograms
var goferTable map[string]precompiledseccomp.Program

// Register has gVisor use the filters, if they are those of its version. It is called
// once, before anything of gVisor's runs.
func Register() {
	if version() == compiledOf {
		register()
	}
}

func register() {
	boot.ListPrecompiled() // makes the tables, once
	gofer.ListPrecompiled()
	for _, p := range compiledBoot() {
		bootTable[p.Name] = p
	}
	for _, p := range compiledGofer() {
		goferTable[p.Name] = p
	}
}

// version is that of gVisor in this program.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == "gvisor.dev/gvisor" && m.Replace == nil {
			return m.Version
		}
	}
	return ""
}
