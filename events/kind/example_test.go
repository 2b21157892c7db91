package kind_test

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/events/kind"
)

// The kind of an error survives wrapping, and decides what a caller may do.
func ExampleOf() {
	err := fmt.Errorf("start: %w", kind.New(kind.Unavailable, "append", "i1", "the log cannot be reached: try again"))
	fmt.Println(kind.Of(err))
	fmt.Println(kind.Is(err, kind.Unavailable))
	fmt.Println(kind.Code(err))
	// Output:
	// unavailable
	// true
	// unavailable
}

// Message returns what a client may read; Error returns everything, for logs.
func ExampleMessage() {
	err := kind.Wrap(kind.Internal, "append", "i1", errors.New("checksum mismatch"))
	fmt.Println(kind.Message(err))
	fmt.Println(err)
	// Output:
	// internal
	// append i1: internal: checksum mismatch
}
