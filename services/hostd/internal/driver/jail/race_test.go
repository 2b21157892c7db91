//go:build race

package jail

// raced says that the race detector watches: it makes each fake, which is a
// process of this program, many times as slow.
const raced = true
