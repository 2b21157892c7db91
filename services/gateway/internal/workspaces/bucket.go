package workspaces

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/workspace"
)

// BucketConfig configures a bucket of an S3 store.
type BucketConfig struct {
	URL       string // address, bucket and an optional prefix of keys, such as https://s3.eu-central-1.amazonaws.com/bucket/prefix
	Region    string // default that of the URL's host, else us-east-1
	AccessKey string
	SecretKey string

	Timeout time.Duration // how long the store may take for a response, or for the next bytes; default 30 s
}

// InBucket is the Store in a bucket of an S3 store. A file is an object, whose key has the tenant, the
// scope and the path. The store itself makes uploads atomic: each is a single PUT, however large.
type InBucket struct {
	client  *minio.Client
	bucket  string
	prefix  string // of all keys; empty or with a slash at the end
	timeout time.Duration
}

const (
	defaultBucketTimeout = 30 * time.Second
	defaultRegion        = "us-east-1"
	bucketTries          = 3  // of a request without a body from a client
	listTimeouts         = 20 // a list has many requests
	maxKey               = 1024
)

// NewInBucket returns the Store in a bucket. It does not connect.
func NewInBucket(cfg BucketConfig) (*InBucket, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the URL of the bucket must be http:// or https://, a host, and the path of the bucket")
	}
	bucket, prefix, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	if err := s3utils.CheckValidBucketName(bucket); err != nil {
		return nil, fmt.Errorf("the bucket %q is invalid: %w", bucket, err)
	}
	if prefix != "" {
		if _, err := workspace.ParsePath(prefix); err != nil {
			return nil, fmt.Errorf("the prefix %q is invalid: %w", prefix, err)
		}
		prefix += "/"
	}
	if cfg.AccessKey == "" || cfg.SecretKey == "" {
		return nil, errors.New("the access key and the secret key of the bucket are required")
	}
	timeout := cmp.Or(cfg.Timeout, defaultBucketTimeout)
	client, err := minio.New(u.Host, &minio.Options{
		Creds: credentials.NewStaticV4(cfg.AccessKey, cfg.SecretKey, ""), Secure: u.Scheme == "https",
		Region:    cmp.Or(cfg.Region, s3utils.GetRegionFromURL(*u), defaultRegion),
		Transport: bucketTransport(timeout), MaxRetries: bucketTries,
	})
	if err != nil {
		return nil, err
	}
	return &InBucket{client, bucket, prefix, timeout}, nil
}

// maxIdleConns is how many unused connections to the store are kept.
const maxIdleConns = 64

// bucketTransport bounds each step of a request, but not the time of a whole transfer.
func bucketTransport(timeout time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: timeout}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &writeTimeout{conn, timeout}, nil
		},
		TLSHandshakeTimeout: timeout, ResponseHeaderTimeout: timeout, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: maxIdleConns,
		DisableCompression: true, // a file whose Content-Encoding is gzip must stay as it is
	}
}

// writeTimeout is a connection whose writes fail if the peer reads nothing for a while.
type writeTimeout struct {
	net.Conn

	timeout time.Duration
}

// Write writes, within the timeout.
func (c *writeTimeout) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// dir returns the beginning of the keys of a workspace. Its parts have no slashes.
func (b *InBucket) dir(of workspace.Scope) string {
	return b.prefix + url.PathEscape(of.Tenant) + "/" + of.App + "/" + of.Set + "/"
}

func (b *InBucket) key(of workspace.Scope, p workspace.Path) (string, error) {
	key := b.dir(of) + string(p)
	if len(key) > maxKey {
		return "", kind.Newf(kind.Invalid, "find file", "", "the path must be %d bytes shorter: a key of the bucket has at most %d", len(key)-maxKey, maxKey)
	}
	return key, nil
}

// objects returns the objects whose keys begin with prefix and follow after, ordered by key. It ends
// with the first error. It does not rely on the store for the order or the prefix.
func (b *InBucket) objects(ctx context.Context, prefix, after string, page int) iter.Seq2[minio.ObjectInfo, error] {
	return func(yield func(minio.ObjectInfo, error) bool) {
		ctx, cancel := context.WithTimeout(ctx, listTimeouts*b.timeout)
		defer cancel()
		last := after
		for o := range b.client.ListObjectsIter(ctx, b.bucket, minio.ListObjectsOptions{Prefix: prefix, StartAfter: after, Recursive: true, MaxKeys: page}) {
			switch {
			case o.Err != nil:
				yield(o, bucketError("list files", "", o.Err))
				return
			case !strings.HasPrefix(o.Key, prefix), o.Key <= last:
				yield(o, kind.New(kind.Unavailable, "list files", "", "the bucket's list of objects is not ordered by key"))
				return
			}
			last = o.Key
			if !yield(o, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(minio.ObjectInfo{}, bucketError("list files", "", err))
		}
	}
}

// maxPage is the number of keys that stores return at once.
const maxPage = 1000

// Workspaces returns the workspaces of a tenant.
func (b *InBucket) Workspaces(ctx context.Context, tenant string) ([]workspace.Usage, error) {
	all := make(map[workspace.Scope]*workspace.Usage)
	prefix := b.prefix + url.PathEscape(tenant) + "/"
	for o, err := range b.objects(ctx, prefix, "", maxPage) {
		if err != nil {
			return nil, err
		}
		const parts = 3
		names := strings.SplitN(o.Key[len(prefix):], "/", parts)
		if len(names) < parts {
			continue // not ours
		}
		of, scopeErr := workspace.ParseScope(tenant, names[0], names[1])
		_, pathErr := workspace.ParsePath(names[2])
		if scopeErr != nil || pathErr != nil {
			continue
		}
		u := all[of]
		if u == nil {
			u = &workspace.Usage{Scope: of}
			all[of] = u
		}
		u.Bytes += o.Size
		u.Files++
	}
	out := make([]workspace.Usage, 0, len(all))
	for u := range maps.Values(all) {
		out = append(out, *u)
	}
	slices.SortFunc(out, func(a, b workspace.Usage) int {
		return cmp.Or(cmp.Compare(a.Scope.App, b.Scope.App), cmp.Compare(a.Scope.Set, b.Scope.Set))
	})
	return out, nil
}

// files returns the files of a workspace whose paths begin with prefix and follow after. Objects that
// another program stored at keys that no file can have are skipped.
func (b *InBucket) files(ctx context.Context, of workspace.Scope, prefix string, after workspace.Path, page int) iter.Seq2[workspace.File, error] {
	return func(yield func(workspace.File, error) bool) {
		dir := b.dir(of)
		start := ""
		if after != "" {
			start = dir + string(after)
		}
		for o, err := range b.objects(ctx, dir+safePrefix(prefix), start, page) {
			if err != nil {
				yield(workspace.File{}, err)
				return
			}
			p, err := workspace.ParsePath(o.Key[len(dir):])
			if err != nil || !strings.HasPrefix(string(p), prefix) {
				continue
			}
			if !yield(workspace.File{Path: p, Size: o.Size, Modified: o.LastModified}, nil) {
				return
			}
		}
	}
}

// safePrefix returns the part of a prefix that is a path. The rest of it may be part of a name, or lead
// elsewhere in a store that treats keys as paths.
func safePrefix(prefix string) string {
	for ; prefix != ""; prefix = prefix[:strings.LastIndexByte(strings.TrimSuffix(prefix, "/"), '/')+1] {
		if _, err := workspace.ParsePath(strings.TrimSuffix(prefix, "/")); err == nil {
			break
		}
	}
	return prefix
}

// Usage returns the size of a workspace.
func (b *InBucket) Usage(ctx context.Context, of workspace.Scope) (workspace.Usage, error) {
	u := workspace.Usage{Scope: of}
	for f, err := range b.files(ctx, of, "", "", maxPage) {
		if err != nil {
			return u, err
		}
		u.Bytes += f.Size
		u.Files++
	}
	if u.Files == 0 {
		return u, workspace.NoWorkspace(of)
	}
	return u, nil
}

// List returns a page of files.
func (b *InBucket) List(ctx context.Context, of workspace.Scope, prefix string, after workspace.Path, limit int) (p Page, err error) {
	for f, err := range b.files(ctx, of, prefix, after, min(limit+1, maxPage)) {
		switch {
		case err != nil:
			return p, err
		case len(p.Files) == limit:
			p.More = true
			return p, nil
		}
		p.Files = append(p.Files, f)
	}
	return p, nil
}

// Open opens a file.
func (b *InBucket) Open(ctx context.Context, of workspace.Scope, p workspace.Path) (File, error) {
	key, err := b.key(of, p)
	if err != nil {
		return File{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	body, o, _, err := (minio.Core{Client: b.client}).GetObject(ctx, b.bucket, key, minio.GetObjectOptions{})
	if err != nil {
		cancel()
		return File{}, bucketError("read file", p, err)
	}
	return File{o.Size, o.LastModified, &watched{body, cancel, b.timeout}}, nil
}

// watched is the body of an object. A read fails if the store sends nothing for a while.
type watched struct {
	io.ReadCloser

	cancel  context.CancelFunc
	timeout time.Duration
}

// Read reads the object.
func (w *watched) Read(p []byte) (int, error) {
	late := time.AfterFunc(w.timeout, w.cancel)
	defer late.Stop()
	n, err := w.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = bucketError("read file", "", err)
	}
	return n, err
}

// Close ends the download.
func (w *watched) Close() error {
	w.cancel()
	return w.ReadCloser.Close()
}

// Put stores a file.
func (b *InBucket) Put(ctx context.Context, of workspace.Scope, p workspace.Path, size int64, r io.Reader) error {
	key, err := b.key(of, p)
	if err != nil {
		return err
	}
	if size > workspace.MaxFile {
		return kind.Newf(kind.Invalid, "store file", string(p), "the file is larger than %d bytes", int64(workspace.MaxFile))
	}
	src := &confirmed{r: r, left: size}
	if size == 0 {
		src.end() // the client does not read an empty body
	}
	if src.err != nil {
		return src.err
	}
	_, err = b.client.PutObject(ctx, b.bucket, key, src, size, minio.PutObjectOptions{
		DisableMultipart: true, ContentType: "application/octet-stream",
		DisableContentSha256: size == 0, // a signature of chunks would hide the length 0
	})
	if src.err != nil {
		return src.err
	}
	return bucketError("store file", p, err)
}

// confirmed reads the last of its bytes once its reader has ended, so that an upload is never complete
// for the store when its reader fails at the end.
type confirmed struct {
	r    io.Reader
	left int64
	err  error // of r
}

// Read reads.
func (c *confirmed) Read(p []byte) (int, error) {
	switch {
	case c.err != nil:
		return 0, c.err
	case c.left == 0:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	case c.left > 1:
		n, err := c.r.Read(p[:min(int64(len(p)), c.left-1)])
		c.left -= int64(n)
		return n, c.fail(err)
	}
	if _, err := io.ReadFull(c.r, p[:1]); err != nil {
		return 0, c.fail(err)
	}
	if c.end(); c.err != nil {
		return 0, c.err
	}
	c.left = 0
	return 1, nil
}

// end waits for the reader's end.
func (c *confirmed) end() {
	if _, err := io.ReadFull(c.r, make([]byte, 1)); err == nil {
		c.err = wrongSize()
	} else if !errors.Is(err, io.EOF) {
		c.err = err
	}
}

// fail keeps the error of a read before the end.
func (c *confirmed) fail(err error) error {
	if errors.Is(err, io.EOF) {
		err = wrongSize()
	}
	c.err = err
	return err
}

// stat returns NotFound if a file does not exist.
func (b *InBucket) stat(ctx context.Context, of workspace.Scope, p workspace.Path) (key string, err error) {
	if key, err = b.key(of, p); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	_, err = b.client.StatObject(ctx, b.bucket, key, minio.StatObjectOptions{})
	return key, bucketError("find file", p, err)
}

// Remove removes a file.
func (b *InBucket) Remove(ctx context.Context, of workspace.Scope, p workspace.Path) error {
	key, err := b.stat(ctx, of, p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return bucketError("remove file", p, b.client.RemoveObject(ctx, b.bucket, key, minio.RemoveObjectOptions{}))
}

// RemoveAll removes a workspace.
func (b *InBucket) RemoveAll(ctx context.Context, of workspace.Scope) error {
	var all []minio.ObjectInfo
	for o, err := range b.objects(ctx, b.dir(of), "", maxPage) {
		if err != nil {
			return err
		}
		all = append(all, minio.ObjectInfo{Key: o.Key})
	}
	if len(all) == 0 {
		return workspace.NoWorkspace(of)
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeouts*b.timeout)
	defer cancel()
	results, err := b.client.RemoveObjectsWithIter(ctx, b.bucket, slices.Values(all), minio.RemoveObjectsOptions{})
	if err != nil {
		return bucketError("remove workspace", "", err)
	}
	for r := range results {
		if r.Err != nil && err == nil {
			err = r.Err // the rest is removed all the same
		}
	}
	return bucketError("remove workspace", "", err)
}

// Download returns a link of the store that reads a file.
func (b *InBucket) Download(ctx context.Context, _ string, of workspace.Scope, p workspace.Path) (string, error) {
	key, err := b.stat(ctx, of, p)
	if err != nil {
		return "", err
	}
	return b.sign(ctx, get, key, p, url.Values{"response-content-disposition": {"attachment"}})
}

// Upload returns a link of the store that writes a file.
func (b *InBucket) Upload(ctx context.Context, _ string, of workspace.Scope, p workspace.Path) (string, error) {
	key, err := b.key(of, p)
	if err != nil {
		return "", err
	}
	return b.sign(ctx, put, key, p, nil)
}

func (b *InBucket) sign(ctx context.Context, method, key string, p workspace.Path, query url.Values) (string, error) {
	u, err := b.client.Presign(ctx, method, b.bucket, key, LinkFor, query)
	if err != nil {
		return "", bucketError("sign link", p, err)
	}
	return u.String(), nil
}

// bucketError returns the error of the store as one of ours. Its text for clients reveals nothing of the
// store's answer. A refusal of the gateway's key is the operator's to mend, so that clients may try again.
func bucketError(op string, p workspace.Path, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	answer := minio.ToErrorResponse(err)
	fail := func(k kind.Kind, msg string) error {
		return &kind.Error{Op: op, ID: string(p), Kind: k, Msg: msg, Err: err}
	}
	switch answer.Code {
	case minio.NoSuchKey:
		return workspace.NoFile(p)
	case minio.NoSuchBucket:
		return fail(kind.Unavailable, "the bucket of workspaces does not exist")
	case minio.EntityTooLarge:
		return fail(kind.Invalid, "the bucket rejects a file of this size")
	case "KeyTooLongError", "KeyTooLong":
		return fail(kind.Invalid, "the bucket rejects a path of this length")
	case "QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull":
		return fail(kind.Exhausted, "the bucket of workspaces is full: remove files")
	}
	switch answer.StatusCode {
	case http.StatusNotFound:
		return workspace.NoFile(p)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fail(kind.Unavailable, "the bucket of workspaces refuses the gateway's key")
	case http.StatusInsufficientStorage:
		return fail(kind.Exhausted, "the bucket of workspaces is full: remove files")
	}
	return fail(kind.Unavailable, "the bucket of workspaces is unavailable: try again")
}
