package nsinit

// Arg is the first argument that selects Init.
const Arg = "namespace-init"
