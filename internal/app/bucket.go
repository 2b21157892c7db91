package app

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/services/gateway"
)

// bucket holds the settings of the bucket of workspaces.
type bucket struct {
	gateway.BucketConfig

	secretFile string
}

func (b *bucket) flags(f *pflag.FlagSet) {
	f.StringVar(&b.URL, "s3-url", "", "URL of the S3 bucket for files of workspaces, with an optional prefix of keys, such as https://s3.eu-central-1.amazonaws.com/BUCKET/PREFIX (default none: they are in the object store of NATS)")
	f.StringVar(&b.Region, "s3-region", "", "region of the bucket (default that of the URL's host, else us-east-1)")
	f.StringVar(&b.AccessKey, "s3-access-key", "", "access key of the bucket (required with --s3-url)")
	f.StringVar(&b.SecretKey, "s3-secret-key", "", "secret key of the bucket; prefer --s3-secret-file or MILLRACE_S3_SECRET_KEY")
	f.StringVar(&b.secretFile, "s3-secret-file", "", "file with the secret key of the bucket")
}

// config returns the bucket; nil without one.
func (b *bucket) config() (*gateway.Bucket, error) {
	if b.URL == "" {
		if b.Region != "" || b.AccessKey != "" || b.SecretKey != "" || b.secretFile != "" {
			return nil, errors.New("--s3-url is required with the other --s3 flags")
		}
		return nil, nil //nolint:nilnil // there is none
	}
	cfg := b.BucketConfig
	if b.secretFile != "" {
		if cfg.SecretKey != "" {
			return nil, errors.New("--s3-secret-key and --s3-secret-file exclude each other")
		}
		raw, err := os.ReadFile(b.secretFile)
		if err != nil {
			return nil, fmt.Errorf("--s3-secret-file: %w", err)
		}
		cfg.SecretKey = string(bytes.TrimSpace(raw))
	}
	bucket, err := gateway.NewBucket(cfg)
	if err != nil {
		return nil, fmt.Errorf("--s3-url: %w", err)
	}
	return bucket, nil
}
