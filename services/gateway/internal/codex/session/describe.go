package session

import (
	"context"

	"github.com/millrace/millrace/services/gateway/internal/codex/fileuri"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
)

// describe returns the description of the sandbox for the client, with the capabilities that
// are offered.
func (c *conn) describe(ctx context.Context) (protocol.Info, error) {
	info, _, err := c.services.Environment.Describe(ctx)
	if err != nil {
		return info, err
	}
	for _, p := range []*string{&info.Cwd, &info.TempDir, &info.UserHomeDir} {
		*p = fileuri.Format(*p, fileuri.URI)
	}
	info.TemporaryDirectories, info.PrependPathDirs = uris(info.TemporaryDirectories), uris(info.PrependPathDirs)
	info.Capabilities = map[string]bool{protocol.CapHTTPHeaderEnvVars: c.services.HTTP != nil}
	if c.services.Filesystem == nil {
		return info, nil
	}
	if f, err := c.services.Filesystem.Files(nil); err == nil {
		_, info.Capabilities[protocol.CapFSWatchMissing] = f.(MissingWatcher)
		_, info.Capabilities[protocol.CapFileWriteStreaming] = f.(HandleCreator)
	}
	return info, nil
}

func uris(paths []string) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = fileuri.Format(p, fileuri.URI)
	}
	return out
}
