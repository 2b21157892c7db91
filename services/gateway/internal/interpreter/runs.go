package interpreter

import (
	"context"
	_ "embed"
	"encoding/json"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

var (
	//go:embed kernels/run.py
	runClient string
	//go:embed kernels/query.py
	queryClient string
	//go:embed kernels/batch.py
	batchClient string
)

// Run is what a client wants to run in the default context of a language. Its process prints the
// lines that kernels/run.py describes, and reads input.
type Run struct {
	Code  string // code for the kernel, unless Batch
	Batch *Batch
}

// Batch is three shell commands. An empty one is skipped; "*" is the default of its step.
type Batch struct {
	Clean string `json:"clean"`
	Build string `json:"build"`
	Exec  string `json:"exec"`
}

// Runs makes the processes of runs. It is safe for concurrent use.
type Runs struct{ h Handler }

// NewRuns returns Runs of the sandboxes of g.
func NewRuns(g record.Gateway) *Runs { return &Runs{Handler{core: g}} }

// Spec returns the process of a run, in the context's kernel, which is started first if it does not
// run. Runs of one sandbox are executed one after the other. Its errors are Invalid if the run is
// too large or the template lacks the language, and those of a start.
func (r *Runs) Spec(ctx context.Context, p core.Principal, sbx sandbox.ID, language string, run Run) (process.Spec, error) {
	in, err := r.h.findDefault(ctx, p, sbx, language)
	if err != nil {
		return process.Spec{}, err
	}
	args, err := run.args(in.address, language)
	return process.Spec{Cmd: "python3", Args: args, User: in.user, Stdin: true}, err
}

// args returns the arguments of the process of a run. It starts without the site's packages and
// without the modules of the working directory, which are the user's.
func (r *Run) args(address, language string) ([]string, error) {
	client, request := queryClient, any(struct {
		Code string            `json:"code"`
		Env  map[string]string `json:"env_vars"`
	}{r.Code, map[string]string{}})
	if r.Batch != nil {
		client, request = batchClient, r.Batch
	}
	raw, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxArgs {
		return nil, kind.Newf(kind.Invalid, "run", "", "more than %d bytes of code", maxArgs)
	}
	return append([]string{"-I", "-S", "-c", runClient + "\n" + client, address, language}, parts(string(raw))...), nil
}

// Kernel reports whether a process is the kernel of a context.
func Kernel(s *process.Summary) bool {
	_, ok := contextOf(s)
	return ok
}
