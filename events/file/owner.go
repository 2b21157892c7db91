package file

import (
	"strconv"
	"strings"

	"github.com/millrace/millrace/events/kind"
)

// In a volume users are numbers: a Request's User is what Owner gives.

// Keep is an id that stays what it is, or is the default.
const Keep = -1

// Owner names an owner and a group.
func Owner(uid, gid int) string { return strconv.Itoa(uid) + ":" + strconv.Itoa(gid) }

// ParseOwner reads what Owner gave; of the empty string both are Keep.
func ParseOwner(s string) (uid, gid int, err error) {
	if s == "" {
		return Keep, Keep, nil
	}
	u, g, ok := strings.Cut(s, ":")
	uid, err1 := strconv.Atoi(u)
	gid, err2 := strconv.Atoi(g)
	if !ok || err1 != nil || err2 != nil || uid < Keep || gid < Keep || uid > maxID || gid > maxID {
		return 0, 0, kind.Newf(kind.Invalid, "file", "", "%q names no owner and group", s)
	}
	return uid, gid, nil
}

// maxID is the highest id that a sandbox can have.
const maxID = 1<<16 - 2
