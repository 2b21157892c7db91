package workspace

import (
	"crypto/rand"
	"encoding/hex"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/store"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// File is a file of a workspace.
type File struct {
	Path     Path
	Size     int64
	Modified time.Time

	object string // its bytes
}

// entry is the last message about a path.
type entry struct {
	scope Scope
	file  File   // without an object: it was removed
	rev   uint64 // stream sequence
}

const subjectPrefix = "work."

func (e *entry) subject() string {
	return subjectPrefix + e.scope.Tenant + "." + e.scope.hash() + "." + e.file.Path.hash()
}

// randomBytes is the size of the mark of a message, and of the name of an object.
const randomBytes = 15

func random() []byte {
	raw := make([]byte, randomBytes)
	rand.Read(raw)
	return raw
}

func newObject() string { return hex.EncodeToString(random()) }

func encode(e *entry) ([]byte, error) {
	return proto.Marshal(&pb.WorkspaceFile{
		Tenant: e.scope.Tenant, App: e.scope.App, Set: e.scope.Set, Path: string(e.file.Path),
		Size: e.file.Size, ModifiedNs: codec.Nanos(e.file.Modified), Object: e.file.object, Attempt: random(),
	})
}

func decode(m store.Message) (entry, error) {
	var b pb.WorkspaceFile
	if err := proto.Unmarshal(m.Data, &b); err != nil {
		return entry{}, err
	}
	return entry{
		scope: Scope{b.Tenant, b.App, b.Set}, rev: m.Seq,
		file: File{Path: Path(b.Path), Size: b.Size, Modified: codec.Time(b.ModifiedNs), object: b.Object},
	}, nil
}
