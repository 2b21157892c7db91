package streams

import "testing"

func TestStreamOfASubject(t *testing.T) {
	for subject, want := range map[string]string{
		"out.0a.h.s.p": "OUT_0a", "sbx.t.s": "SBX", "proc.h.s.p": "PROC", "cmd.h": "CMD", "host.h": "HOSTS", "place.s.p": "PLACE",
		"tunnel.h": "TUNNEL", "io.reply.c.1": "IO", "other.x": "",
	} {
		if got := Of(subject); got != want {
			t.Errorf("Of(%q) = %q, want %q", subject, got, want)
		}
	}
}
