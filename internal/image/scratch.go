package image

import (
	"io"
	"syscall"

	"github.com/millrace/millrace/events/kind"
)

const (
	leastFree  = 1 << 30  // bytes of a scratch's disk that stay free for others; of a small disk a twentieth
	roomChecks = 16 << 20 // bytes of a layer between two looks
)

// roomy reads a layer that is written to a scratch as it is read, as long as the disk has
// room for more than others need. Exhausted then.
type roomy struct {
	io.ReadCloser
	scratch string
	least   int64 // bytes that stay free
	left    int   // bytes until it is looked again
}

// leaveRoom has an image's layers, which are kept in scratch, be read so.
func (img *Image) leaveRoom(scratch string) {
	_, total := room(scratch)
	for i := range img.Layers {
		open := img.Layers[i].Open
		img.Layers[i].Open = func() (io.ReadCloser, error) {
			layer, err := open()
			return &roomy{ReadCloser: layer, scratch: scratch, least: min(leastFree, total/20)}, err
		}
	}
}

func (r *roomy) Read(p []byte) (int, error) {
	if r.left <= 0 {
		if free, _ := room(r.scratch); free < r.least {
			return 0, kind.New(kind.Exhausted, "pull", "", "the disk has no room for the image's layers")
		}
		r.left = roomChecks
	}
	n, err := r.ReadCloser.Read(p)
	r.left -= n
	return n, err
}

// room is how many bytes of a directory's disk are free, and how many it has; without an
// answer there are enough.
func room(dir string) (free, total int64) {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return leastFree, leastFree
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize) //nolint:unconvert,gosec // their types differ between systems
}
