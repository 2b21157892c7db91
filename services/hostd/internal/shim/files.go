package shim

import (
	"github.com/millrace/millrace/services/hostd/internal/confine"
	"github.com/millrace/millrace/services/hostd/internal/files"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/users"
)

// newFiles returns the file server. The shim's own root is the sandbox's.
func newFiles(known *users.Database) (*files.Server, error) {
	return files.New(files.Config{
		Procs: true, Confine: confine.RestrictThread,
		Lookup: func(user string) (files.Account, error) {
			a, err := known.Lookup(user)
			return files.Account{Home: a.Home, UID: a.UID, GID: a.GID}, err
		},
		Name: func(group bool, id uint32) string {
			if group {
				return known.GroupName(id)
			}
			return known.UserName(id)
		},
	})
}
