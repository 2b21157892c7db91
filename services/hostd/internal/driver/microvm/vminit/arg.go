package vminit

// Arg is the first argument that means Init.
const Arg = "microvm-init"
