package hostd

import (
	"io"
	"os"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/natsd"
	"github.com/millrace/millrace/services/hostd/internal/convruntime"
	"github.com/millrace/millrace/services/hostd/internal/deictic"
	"github.com/millrace/millrace/services/hostd/internal/driver/microvm/vminit"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
	"github.com/millrace/millrace/services/hostd/internal/schedtick"
	"github.com/millrace/millrace/services/hostd/internal/shim"
	"github.com/millrace/millrace/services/hostd/internal/sudo"
)

const shimRole = "shim"

// RunHiddenRole runs the hidden roles of hostd's own program, inside a sandbox and beside hostd; args
// are os.Args. It must be called before anything else in main: ok reports that the program was
// started in such a role and must exit with code.
func RunHiddenRole(args []string, stdout, stderr io.Writer) (code int, ok bool) {
	if sudo.Called(args) {
		return sudo.Main(args[1:], stdout, stderr), true
	}
	if len(args) < 2 {
		return 0, false
	}
	switch args[1] {
	case shimRole:
		natsd.StopUsageSampling()
		return shim.Main(args[2:], stderr), true
	case schedtick.Arg:
		natsd.StopUsageSampling()
		return schedtick.Main(), true
	case vminit.Arg:
		vminit.Init(args[2:]) //nolint:errcheck // the console has the error
		return 1, true
	case vminit.PackArg:
		return vminit.Pack(args[2:]), true
	case bootstrap.Arg:
		natsd.StopUsageSampling()
		return convruntime.Main(args[2:], os.Stdin, stdout, stderr), true
	case bootstrap.AgentArg:
		natsd.StopUsageSampling()
		return deictic.Main(args[2:], os.Stdin, stdout, stderr), true
	case nsinit.Arg:
		nsinit.Init(args[2:]) //nolint:errcheck // the driver has the error
		return 1, true
	}
	return 0, false
}
