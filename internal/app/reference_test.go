package app

import (
	"os"
	"testing"
)

// docs/cli.md is what the program prints. Write it again with: go run . docs > docs/cli.md
func TestReferenceIsCurrent(t *testing.T) {
	got, _, err := root(t.Context(), nil, "docs")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("docs/cli.md differs from the %d bytes that the program prints", len(got))
	}
}

func TestManualPagesAreWritten(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := root(t.Context(), nil, "docs", "--man", dir); err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"millrace.1", "millrace-up.1", "millrace-sandbox-create.1"} {
		if b, err := os.ReadFile(dir + "/" + page); err != nil || len(b) < 500 {
			t.Errorf("%s: %d bytes, %v", page, len(b), err)
		}
	}
}
