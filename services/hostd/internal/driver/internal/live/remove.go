package live

import (
	"path/filepath"

	"github.com/millrace/millrace/services/hostd/internal/rmtree"
)

// Remove removes the named files and trees in dir, in that order. All processes of the
// sandbox that wrote them must have ended.
func Remove(dir string, names ...string) error {
	for _, n := range names {
		if err := rmtree.Tree(filepath.Join(dir, n)); err != nil {
			return err
		}
	}
	return nil
}
