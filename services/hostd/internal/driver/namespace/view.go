//go:build linux

package namespace

import (
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

// View is what the host template uses of the host, for another driver that makes
// a root of it.
type View struct {
	Etc   string        // directory with the public part of the host's /etc
	Binds []string      // directories in / besides usr
	Links []nsinit.Text // links in /
	Files []nsinit.File // the sandbox's own files
	Env   []string      // the shim's environment
}

// View returns the View of the sandbox that s describes; with a Root of its own
// only Files and Env.
func (d *Driver) View(s driver.Spec) (View, error) {
	if s.Root != "" {
		var spec nsinit.Spec
		err := fromTree(&s, &spec)
		return View{Files: spec.Files, Env: spec.Env}, err
	}
	t, err := d.template(&s, false)
	if err != nil {
		return View{}, err
	}
	return View{
		Etc: t.etc, Binds: t.binds, Links: t.links,
		Files: t.files(s.HostName()), Env: environ(t.shell, s.Env),
	}, nil
}

// OwnFiles returns the paths in View.Files of any sandbox.
func OwnFiles() []string {
	var names []string
	for _, f := range (&hostTemplate{sudo: true}).files("") {
		names = append(names, f.Name)
	}
	return names
}
