//go:build !amd64

package filters

import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

const compiledOf = "no version"

func compiledBoot() []precompiledseccomp.Program { return nil }

func compiledGofer() []precompiledseccomp.Program { return nil }
