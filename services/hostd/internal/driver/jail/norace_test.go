//go:build !race

package jail

const raced = false
