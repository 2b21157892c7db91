package httpconn

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
)

// A response must not wait when its server responds before it has read the last bytes.
func TestAResponseDoesNotWaitForTheLastBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &Upload{r: strings.NewReader("word"), length: 4, done: make(chan struct{})}
		if n, err := u.Read(make([]byte, 4)); n != 4 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if clean, err := u.State(); clean || err != nil {
			t.Errorf("while they are written: %v, %v", clean, err)
		}
		if _, err := u.Read(make([]byte, 4)); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if clean, err := u.State(); !clean || err != nil {
			t.Errorf("when all is written: %v, %v", clean, err)
		}
	})
}

// A failed body is not read again: by then its reader may serve another request.
func TestAFailedBodyIsNotReadAgain(t *testing.T) {
	broken := errors.New("broken")
	u := &Upload{r: iotest.ErrReader(broken), length: 4, done: make(chan struct{}), failed: func() {}}
	if _, err := u.Read(make([]byte, 4)); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if n, err := u.Read(make([]byte, 4)); n > 0 || !errors.Is(err, errReleased) {
		t.Errorf("read again: %d bytes, %v", n, err)
	}
	if clean, err := u.State(); clean || !errors.Is(err, broken) {
		t.Errorf("its state: %v, %v", clean, err)
	}
}
