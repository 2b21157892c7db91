package cli

import (
	"strings"
	"testing"
)

func TestDrainWaitFailsOnItemsThatStay(t *testing.T) {
	const volume = `{"kind":"volume","id":"v1","tenant":"t","state":"stays","reason":"a volume is never copied"}`
	g := newFakeGateway(t)
	g.Items = []string{volume, volume, ""}
	if got := g.verb(nil, "host", "drain", "h"); got.code != 0 {
		t.Errorf("without --wait: exit %d, %s", got.code, got.errOut)
	}
	if got := g.verb(nil, "host", "drain", "--wait", "h"); got.code != 1 || !strings.Contains(got.errOut, "h: ") || !strings.Contains(got.errOut, "volume v1") {
		t.Errorf("exit %d, %q", got.code, got.errOut)
	}
}
