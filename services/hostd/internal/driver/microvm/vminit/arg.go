package vminit

// Arg is the first argument that means Init, and PackArg that which means Pack.
const (
	Arg     = "microvm-init"
	PackArg = "microvm-pack"
)

// PackFlag is the shim's argument with what Aside wants: two descriptors, that of the
// directory of what was written and that of the directory of all cgroups.
const PackFlag = "-pack"
