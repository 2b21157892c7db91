package helperbin

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
)

// FindSame is Find for a program that must have the same source as this one: a cached
// program counts only if the source is not newer than this program.
func (p Program) FindSame() (string, error) {
	path, err := p.Find()
	if err != nil {
		return "", err
	}
	if exe, err := os.Executable(); err == nil && filepath.Dir(path) == filepath.Dir(exe) {
		return path, nil
	}
	return path, p.same()
}

// BuildSame is Build for such a program.
func (p Program) BuildSame(ctx context.Context, log LogFunc) (string, error) {
	if err := p.same(); err != nil {
		return "", err
	}
	return p.Build(ctx, log)
}

// same returns ErrNoSource if the source may differ from the one that this program was
// built from.
func (p Program) same() error {
	root, err := source()
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	built, err := os.Stat(exe)
	if err != nil {
		return err
	}
	for _, in := range p.Inputs {
		err := filepath.WalkDir(filepath.Join(root, in), func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !isInput(d.Name()) {
				return err
			}
			if fi, err := d.Info(); err != nil || fi.ModTime().After(built.ModTime()) {
				return ErrNoSource
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
