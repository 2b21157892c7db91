package nsinit

// Arg is the first argument that means Init.
const Arg = "namespace-init"
