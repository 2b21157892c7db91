package file

import (
	"strconv"
	"strings"

	"github.com/millrace/millrace/events/kind"
)

// In a volume, users are identified by numbers: a Request's User is a result of Owner.

// Keep is an id that stays unchanged, or is the default.
const Keep = -1

// Owner encodes an owner and a group.
func Owner(uid, gid int) string { return strconv.Itoa(uid) + ":" + strconv.Itoa(gid) }

// ParseOwner decodes the result of Owner; for "" both are Keep.
func ParseOwner(s string) (uid, gid int, err error) {
	if s == "" {
		return Keep, Keep, nil
	}
	u, g, ok := strings.Cut(s, ":")
	uid, err1 := strconv.Atoi(u)
	gid, err2 := strconv.Atoi(g)
	if !ok || err1 != nil || err2 != nil || uid < Keep || gid < Keep || uid > maxID || gid > maxID {
		return 0, 0, kind.Newf(kind.Invalid, "file", "", "%q is not an owner and a group", s)
	}
	return uid, gid, nil
}

// maxID is the highest id in a sandbox.
const maxID = 1<<16 - 2
