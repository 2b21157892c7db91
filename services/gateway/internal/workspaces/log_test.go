package workspaces_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/workspace"
	"github.com/millrace/millrace/services/gateway/internal/workspaces"
	"github.com/millrace/millrace/services/gateway/internal/workspaces/workspacestest"
)

// signer is a Signer with a known secret.
type signer string

func (s signer) DeriveKey(text string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(string(s)+text)))
}

func TestInLog(t *testing.T) {
	workspacestest.Run(t, func(t *testing.T) workspaces.Store {
		files := eventstest.Open(t, eventstest.Start(t)).Workspaces()
		if err := files.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		return workspaces.NewInLog(files, workspaces.NewLinks(signer("k"), time.Now))
	})
}

func TestLinks(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	scope := workspace.Scope{Tenant: "alice", App: "app", Set: "set"}
	l := workspaces.NewLinks(signer("k"), func() time.Time { return now })
	url, err := workspaces.NewInLog(nil, l).Upload(t.Context(), "http://x", scope, "a/b")
	if err != nil {
		t.Fatal(err)
	}
	token, ok := strings.CutPrefix(url, "http://x"+workspaces.LinkPath)
	if !ok {
		t.Fatal(url)
	}
	if of, p, err := l.Check("PUT", token); of != scope || p != "a/b" || err != nil {
		t.Errorf("%v %v %v", of, p, err)
	}
	text, signature, _ := strings.Cut(token, ".")
	forged := workspaces.NewLinks(signer("other"), func() time.Time { return now })
	for name, check := range map[string]func() error{
		"another method":    func() error { _, _, err := l.Check("GET", token); return err },
		"another secret":    func() error { _, _, err := forged.Check("PUT", token); return err },
		"nothing":           func() error { _, _, err := l.Check("PUT", ""); return err },
		"no signature":      func() error { _, _, err := l.Check("PUT", text+"."); return err },
		"another signature": func() error { _, _, err := l.Check("PUT", text+"."+signature+"0"); return err },
		"a changed text":    func() error { _, _, err := l.Check("PUT", text+"A."+signature); return err },
		"after an hour": func() error {
			now = now.Add(workspaces.LinkFor)
			_, _, err := l.Check("PUT", token)
			now = now.Add(-1)
			if _, _, err := l.Check("PUT", token); err != nil {
				t.Errorf("before its end: %v", err)
			}
			return err
		},
	} {
		if err := check(); !kind.Is(err, kind.Denied) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
