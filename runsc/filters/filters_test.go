package filters

import (
	"bytes"
	"flag"
	"fmt"
	"go/format"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/bpf"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform/systrap"
	boot "gvisor.dev/gvisor/runsc/boot/filter/config"
	gofer "gvisor.dev/gvisor/runsc/fsgofer/filter/config"
)

//go:linkname bootRules gvisor.dev/gvisor/runsc/boot/filter/config.rules
func bootRules(boot.Options, precompiledseccomp.Values) (allowed, denied seccomp.SyscallRules)

//go:linkname goferRules gvisor.dev/gvisor/runsc/fsgofer/filter/config.rules
func goferRules(gofer.Options, precompiledseccomp.Values) (allowed, denied seccomp.SyscallRules)

// update regenerates the file that TestCompiled compares with.
var update = flag.Bool("update", false, "regenerate the compiled filters")

// The compiled filters decide every call as gVisor's own rules do. Two compilations
// are equivalent, not identical.
func TestCompiled(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("no filters for", runtime.GOARCH)
	}
	b := boot.Options{Platform: (*systrap.Systrap)(nil).SeccompInfo(), HostFilesystem: true}
	sentry := compile(t, b.ConfigKey(), b.Vars(), boot.SeccompOptions(b), func(v precompiledseccomp.Values) (allowed, denied seccomp.SyscallRules) {
		return bootRules(b, v)
	})
	wanted := map[string]filter{b.ConfigKey(): {sentry, b.Vars()}}
	var gofers []precompiledseccomp.Program
	for _, serves := range []bool{false, true} {
		g := gofer.Options{DirectFS: true, LisafsNeeded: serves}
		p := compile(t, g.ConfigKey(), g.Vars(), seccomp.ProgramOptions{}, func(v precompiledseccomp.Values) (allowed, denied seccomp.SyscallRules) {
			return goferRules(g, v)
		})
		gofers = append(gofers, p)
		wanted[g.ConfigKey()] = filter{p, g.Vars()}
	}
	if *update {
		if err := os.WriteFile("compiled_amd64.go", source(t, []precompiledseccomp.Program{sentry}, gofers), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if v := required(t); compiledOf != v {
		t.Fatalf("the filters are for gVisor %s, this is %s: run this test with -update", compiledOf, v)
	}
	register()
	for key, want := range wanted {
		got, ok := bootTable[key]
		if !ok {
			got, ok = goferTable[key]
		}
		if !ok {
			t.Fatalf("gVisor has no filter %s", key)
		}
		compareFilters(t, filter{got, want.vars}, want)
	}
}

// filter is a program, and the values of its variables in this process.
type filter struct {
	precompiledseccomp.Program
	vars precompiledseccomp.Values
}

func (f filter) runnable(t *testing.T) bpf.Program {
	t.Helper()
	insns, err := f.RenderInstructions(f.vars)
	if err != nil {
		t.Fatal(err)
	}
	p, err := bpf.Compile(insns, false)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// compareFilters fails where two filters differ on a call: for each number, with the arguments
// that either filter tests.
func compareFilters(t *testing.T, got, want filter) {
	t.Helper()
	words := append(slices.Clone(got.Bytecode32), want.Bytecode32...)
	ours, theirs := got.runnable(t), want.runnable(t)
	random := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, (&linux.SeccompData{}).SizeBytes())
	answers := map[uint32]int{}
	for nr := range int32(600) {
		for range 200 {
			d := linux.SeccompData{Nr: nr, Arch: linux.AUDIT_ARCH_X86_64, InstructionPointer: 1}
			for i := range d.Args {
				if random.IntN(3) > 0 {
					d.Args[i] = uint64(words[random.IntN(len(words))])
				}
			}
			in := seccomp.DataAsBPFInput(&d, buf)
			a, err := bpf.Exec[bpf.NativeEndian](ours, in)
			b, err2 := bpf.Exec[bpf.NativeEndian](theirs, in)
			if a != b || err != nil || err2 != nil {
				t.Fatalf("%s: %+v: %#x, %v; want %#x, %v", want.Name, d, a, err, b, err2)
			}
			answers[a]++
		}
	}
	if len(answers) < 2 {
		t.Errorf("%s: all calls get the same result: %v", want.Name, answers)
	}
}

// required returns the version of gVisor in go.mod: a test binary has no build information
// about its modules.
func required(t *testing.T) string {
	t.Helper()
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(mod), "\tgvisor.dev/gvisor ")
	version, _, _ := strings.Cut(rest, "\n")
	if !ok || version == "" {
		t.Fatal("go.mod does not require gVisor")
	}
	return version
}

// compile compiles a filter as gVisor's own build does.
func compile(t *testing.T, key string, vars precompiledseccomp.Values, opts seccomp.ProgramOptions,
	rules func(precompiledseccomp.Values) (allowed, denied seccomp.SyscallRules)) precompiledseccomp.Program {
	t.Helper()
	p, err := precompiledseccomp.Precompile(key, slices.Collect(maps.Keys(vars)), func(v precompiledseccomp.Values) *seccomp.Program {
		allowed, denied := rules(v)
		return &seccomp.Program{RuleSets: []seccomp.RuleSet{{Rules: denied.Copy()}, {Rules: allowed.Copy(), Action: seccomp.Allow}}, Options: opts}
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// source returns the file with the filters.
func source(t *testing.T, boots, gofers []precompiledseccomp.Program) []byte {
	t.Helper()
	var w bytes.Buffer
	fmt.Fprintln(&w, "// Code generated by TestCompiled -update. DO NOT EDIT.\n\npackage filters\n\nimport \"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp\"")
	fmt.Fprintf(&w, "\nconst compiledOf = %q\n", required(t))
	for _, part := range []struct {
		name string
		all  []precompiledseccomp.Program
	}{{"compiledBoot", boots}, {"compiledGofer", gofers}} {
		fmt.Fprintf(&w, "\nfunc %s() []precompiledseccomp.Program {\n\treturn []precompiledseccomp.Program{\n", part.name)
		for _, p := range part.all {
			fmt.Fprintf(&w, "{\nName: %q,\nVarOffsets: %#v,\nBytecode32: []uint32{\n", p.Name, p.VarOffsets)
			for words := range slices.Chunk(p.Bytecode32, 16) {
				for _, word := range words {
					fmt.Fprintf(&w, "%#x,", word)
				}
				fmt.Fprintln(&w)
			}
			fmt.Fprintln(&w, "},\n},")
		}
		fmt.Fprintln(&w, "}\n}")
	}
	text, err := format.Source(w.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return text
}
