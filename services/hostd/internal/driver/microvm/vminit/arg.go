package vminit

// Arg is the first argument that selects Init, and PackArg the one that selects Pack.
const (
	Arg     = "microvm-init"
	PackArg = "microvm-pack"
)

// PackFlag is the shim's argument with the parameter of Aside: two descriptors, that of the
// directory of written files and that of the directory of all cgroups.
const PackFlag = "-pack"
