package files

import (
	"archive/tar"
	"bytes"
	"context"
	"mime/multipart"
	"net/textproto"
	"path"
)

// Limits of a download.
const (
	maxDownloads = 5
	maxDownload  = 8 << 20 // bytes of a file
)

// Download returns the body and the content type of a response with the files, each in a tar.
func Download(ctx context.Context, from Store, paths []string) (body []byte, contentType string, err error) {
	if len(paths) == 0 || len(paths) > maxDownloads {
		return nil, "", invalid("files: must have between 1 and 5 paths")
	}
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	for _, p := range paths {
		archive, err := Tar(ctx, from, p)
		if err != nil {
			return nil, "", err
		}
		part, err := w.CreatePart(textproto.MIMEHeader{"Content-Type": {"application/octet-stream"}, "Content-Encoding": {"identity"}})
		if err != nil {
			return nil, "", err
		}
		part.Write(archive) //nolint:errcheck // a buffer
	}
	if err := w.Close(); err != nil {
		return nil, "", err
	}
	return out.Bytes(), "multipart/mixed; boundary=" + w.Boundary(), nil
}

// Tar returns a tar with a file.
func Tar(ctx context.Context, from Store, name string) ([]byte, error) {
	name, err := Check(name)
	if err != nil {
		return nil, err
	}
	e, content, err := from.Read(ctx, name, maxDownload)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err = w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: path.Base(name), Mode: int64(e.Mode), Size: int64(len(content)), ModTime: e.Modified,
	})
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	return out.Bytes(), err
}
