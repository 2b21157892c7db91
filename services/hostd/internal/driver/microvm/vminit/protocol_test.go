//go:build linux

package vminit

import (
	"bytes"
	"io"
	"net"
	"reflect"
	"testing"
)

// The guest receives its Spec and does not read beyond it.
func TestReceiveReadsNoFurtherThanTheSpec(t *testing.T) {
	host, guest := net.Pipe()
	defer host.Close()
	want := &Spec{Hostname: "i1", Argv: []string{"shim", "-x"}, Env: []string{"A=b"}, Seed: []byte{1, 2, 3}, Now: 7, Sudo: true}
	failed := make(chan error, 1)
	go func() {
		err := AwaitReady(host)
		if err == nil {
			err = Send(host, want)
		}
		if err == nil {
			_, err = io.WriteString(host, "next")
		}
		failed <- err
	}()
	got, err := receive(guest)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v; want %+v", got, err, want)
	}
	next := make([]byte, 4)
	if _, err := io.ReadFull(guest, next); err != nil || string(next) != "next" {
		t.Errorf("next byte in the guest: %q, %v", next, err)
	}
	if err := <-failed; err != nil {
		t.Error(err)
	}
}

type specResult struct {
	io.Reader
	io.Writer
}

// A connection to the shim of a waiting guest is not mistaken for one that sends a
// Spec.
func TestReceiveRejectsMalformedSpecs(t *testing.T) {
	for name, text := range map[string]string{
		"a length beyond all bounds": "\xff\xff\xff\xff{}",
		"no JSON":                    "\x00\x00\x00\x02xx",
		"truncated":                  "\x00\x00\x00\x09{}",
		"nothing":                    "",
	} {
		if s, err := receive(specResult{bytes.NewBufferString(text), io.Discard}); err == nil {
			t.Errorf("%s: accepted as %+v", name, s)
		}
	}
	if err := AwaitReady(bytes.NewBufferString("x")); err == nil {
		t.Error("a guest that sends something else counts as ready")
	}
	if err := Send(io.Discard, &Spec{Hostname: string(make([]byte, maxSpec))}); err == nil {
		t.Error("a spec beyond the limit was sent")
	}
}
