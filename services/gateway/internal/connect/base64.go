package connect

import "encoding/base64"

// appendBase64 appends the base64 of the concatenation of a and b.
func appendBase64(dst, a, b []byte) []byte {
	if len(a) > 0 {
		whole := len(a) - len(a)%3
		dst = base64.StdEncoding.AppendEncode(dst, a[:whole])
		if whole < len(a) {
			var seam [3]byte
			n := copy(seam[:], a[whole:])
			m := copy(seam[n:], b)
			dst = base64.StdEncoding.AppendEncode(dst, seam[:n+m])
			b = b[m:]
		}
	}
	return base64.StdEncoding.AppendEncode(dst, b)
}
