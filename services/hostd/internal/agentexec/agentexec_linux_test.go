package agentexec

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

func TestTheProgramIsUnpacked(t *testing.T) {
	want := strings.Repeat("a program ", 100_000)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, want)
	z.Close()
	f, err := unpack(b.String())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := os.ReadFile(f.Name()); err == nil {
		t.Errorf("it is a file of the sandbox: %d bytes", len(got))
	}
	got, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
	if string(got) != want || err != nil {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	if _, err := unpack(""); !errors.Is(err, errNone) {
		t.Errorf("without a program: %v", err)
	}
	if _, err := unpack(b.String()[:b.Len()/2]); err == nil {
		t.Error("half a program was unpacked")
	}
}
