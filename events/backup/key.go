package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/tink-crypto/tink-go/v2/streamingaead/subtle"

	"github.com/millrace/millrace/events/kind"
)

const (
	keySize     = 32
	segmentSize = 1 << 20
	maxKeyFile  = 4 << 10
)

// Causes of errors that concern a backup's files. See [kind.Code] for their names.
var (
	ErrWrongKey = errors.New("wrong backup key")
	ErrDamaged  = errors.New("damaged backup")
	ErrMissing  = errors.New("missing file of a backup")
)

// Key seals the files of a backup.
type Key struct {
	id   string
	aead *subtle.AESGCMHKDF
}

// ReadKey reads a key from a file: 64 hexadecimal digits. Errors do not contain the key.
func ReadKey(path string) (*Key, error) {
	if path == "" {
		return nil, kind.New(kind.Invalid, "read backup key", "", "a key is required: --backup-key FILE; create one with: openssl rand -hex 32")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, kind.Newf(kind.Invalid, "read backup key", "", "%v: create a key with: openssl rand -hex 32", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, kind.Wrap(kind.Invalid, "read backup key", path, err)
	}
	return ParseKey(string(text))
}

// ParseKey parses a key.
func ParseKey(text string) (*Key, error) {
	raw, err := hex.DecodeString(strings.TrimSpace(text))
	if err != nil || len(raw) != keySize {
		return nil, kind.Newf(kind.Invalid, "parse backup key", "", "a backup key must have %d hexadecimal digits", 2*keySize)
	}
	aead, err := subtle.NewAESGCMHKDF(raw, "SHA256", keySize, segmentSize, 0)
	if err != nil {
		return nil, kind.Wrap(kind.Internal, "parse backup key", "", err)
	}
	sum := sha256.Sum256(append([]byte("millrace backup key id\x00"), raw...))
	return &Key{id: hex.EncodeToString(sum[:8]), aead: aead}, nil
}

// ID returns the id of the key. It discloses nothing about the key.
func (k *Key) ID() string { return k.id }

// seal returns a writer that encrypts to w for the file of that name. Its Close ends the file and
// does not close w.
func (k *Key) seal(w io.Writer, name string) (io.WriteCloser, error) {
	return k.aead.NewEncryptingWriter(w, boundTo(name))
}

// open returns a reader of the plaintext of the file of that name.
func (k *Key) open(r io.Reader, name string) (io.Reader, error) {
	plain, err := k.aead.NewDecryptingReader(r, boundTo(name))
	return opened{plain, name}, err
}

func boundTo(name string) []byte { return []byte("millrace backup\x00" + name) }

// opened returns ErrDamaged for data that does not authenticate.
type opened struct {
	r    io.Reader
	name string
}

func (o opened) Read(b []byte) (int, error) {
	n, err := o.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = damaged(o.name, err)
	}
	return n, err
}

func damaged(name string, cause error) error {
	return &kind.Error{Op: "read backup", ID: name, Kind: kind.Precondition, Code: "backup_damaged", Err: errors.Join(ErrDamaged, cause), Msg: fmt.Sprintf("the file %s of the backup is damaged: use another copy of the backup", name)}
}

func missing(name string) error {
	return &kind.Error{Op: "read backup", ID: name, Kind: kind.Precondition, Code: "backup_file_missing", Err: ErrMissing, Msg: fmt.Sprintf("the file %s of the backup does not exist: use a complete copy of the backup", name)}
}

func wrongKey(sealedWith, given string) error {
	return &kind.Error{Op: "read backup", Kind: kind.Precondition, Code: "backup_key_wrong", Err: ErrWrongKey, Msg: fmt.Sprintf("the backup was sealed with the key %s, and the given one is %s", sealedWith, given)}
}
