package seal

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/millrace/millrace/events/kind"
)

// SealMap encrypts the names and values of a map for a place. An empty map is an empty text.
func (r *Ring) SealMap(at Place, m map[string]string) (Text, error) {
	words := make([]string, 0, 2*len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		words = append(words, k, m[k])
	}
	return r.SealList(at, words)
}

// OpenMap decrypts a map. Its errors are those of Open.
func (r *Ring) OpenMap(at Place, t Text) (map[string]string, error) {
	words, err := r.OpenList(at, t)
	if err != nil || len(words) == 0 {
		return nil, err
	}
	m := make(map[string]string, len(words)/2)
	for ; len(words) > 1; words = words[2:] {
		m[words[0]] = words[1]
	}
	return m, nil
}

// SealList encrypts texts for a place. An empty list is an empty text.
func (r *Ring) SealList(at Place, words []string) (Text, error) {
	var out []byte
	for _, s := range words {
		out = binary.AppendUvarint(out, uint64(len(s)))
		out = append(out, s...)
	}
	return r.Seal(at, string(out))
}

// OpenList decrypts texts. Its errors are those of Open.
func (r *Ring) OpenList(at Place, t Text) ([]string, error) {
	text, err := r.Open(at, t)
	var words []string
	for err == nil && text != "" {
		n, used := binary.Uvarint([]byte(text[:min(len(text), binary.MaxVarintLen64)]))
		if used <= 0 || n > uint64(len(text)-used) {
			return nil, kind.Newf(kind.Internal, "open", at.Record, "the sealed %s is not a list", at.Field)
		}
		words, text = append(words, text[used:used+int(n)]), text[used+int(n):]
	}
	return words, err
}
