//go:build linux

package nsinit

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

func sample() Spec {
	return Spec{
		EtcLower: "/run/a:b,c\\d", EtcDirs: []string{"ssl", "ssl/certs"}, UsrDirs: []string{"bin", "local", "local/bin"}, Binds: []string{"lib"},
		Links: []Text{{"bin", "usr/bin"}}, Files: []File{{"etc/passwd", "root\n", 0o600, 1000}, {Name: "etc/empty"}},
		Tree: "/var/lib/tree", Sudo: true, Below: "/var/lib/layers", Layers: 3, Disk: true,
		Volumes:  []Text{{"/data", "/var/lib/volumes/v1/files"}},
		Program:  Program{Path: "/usr/bin/vmm", Shown: []string{"/lib/libc.so.6"}, Device: "/dev/kvm", Keep: 8, DiesWithParent: true},
		Hostname: "i1", HasRoot: true, ShmMiB: 64, Limits: []Limit{{7, 1 << 40, 5}},
		Argv: []string{"shim", ""}, Env: []string{"A=" + strings.Repeat("x", 100_000)}, KeepGroup: true, Trial: true,
	}
}

func TestReadSpecReturnsTheAppendedSpec(t *testing.T) {
	want := sample()
	got, err := readSpec(bytes.NewReader(want.Append(nil)))
	if err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A spec that was truncated by the death of its writer is never accepted.
func TestTruncatedSpecIsRefused(t *testing.T) {
	s := sample()
	s.Env = nil
	b := s.Append(nil)
	for n := range b {
		if _, err := readSpec(bytes.NewReader(b[:n])); err == nil {
			t.Fatalf("%d of %d bytes were accepted", n, len(b))
		}
	}
}

// Every field is coded: a forgotten one would silently be zero inside.
func TestSpecFieldsAreAllInTheSample(t *testing.T) {
	v := reflect.ValueOf(sample())
	for i := range v.NumField() {
		if v.Type().Field(i).IsExported() && v.Field(i).IsZero() {
			t.Errorf("%s is zero in the sample", v.Type().Field(i).Name)
		}
	}
}

func FuzzSpec(f *testing.F) {
	s := sample()
	f.Add(s.Append(nil))
	f.Add([]byte{5, 0, 0, 0, 255, 255, 255, 255, 15})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := readSpec(bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := readSpec(bytes.NewReader(s.Append(nil)))
		if err != nil || !reflect.DeepEqual(s, again) {
			t.Errorf("%+v came back as %+v, %v", s, again, err)
		}
	})
}

func TestInitRefusesArguments(t *testing.T) {
	if err := Init([]string{"x"}); err == nil {
		t.Error("no error")
	}
}
