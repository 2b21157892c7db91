// Package filters contains the precompiled system call filters of gVisor's processes:
// otherwise each process compiles its own for every sandbox, which takes a sixth of the CPU
// time of a create.
//
// They are compiled from gVisor's own rules, for one version and for the configuration that
// the driver uses. GVisor compiles any other itself.
package filters

import (
	"runtime/debug"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	boot "gvisor.dev/gvisor/runsc/boot/filter"
	gofer "gvisor.dev/gvisor/runsc/fsgofer/filter"
)

// gVisor's module lacks the table that its own build generates, and has no call
// to fill it.

//go:linkname bootTable gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var bootTable map[string]precompiledseccomp.Program

//go:linkname goferTable gvisor.dev/gvisor/runsc/fsgofer/filter.precompiledPrograms
var goferTable map[string]precompiledseccomp.Program

// Register makes gVisor use the filters, if they are for its version. It must be called
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

// version returns the version of gVisor in this program.
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
