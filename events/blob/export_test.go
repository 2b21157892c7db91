package blob

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/template"
)

// HasPartOlder is HasPart with another age.
func (l *Store) HasPartOlder(ctx context.Context, sum template.Sum, age time.Duration) (bool, error) {
	return l.hasPart(ctx, string(sum), age)
}

// PartTime returns the modification time of a part.
func (l *Store) PartTime(ctx context.Context, sum template.Sum) (time.Time, error) {
	b, err := l.conn.Bucket(ctx, bucketTemplates)
	if err != nil {
		return time.Time{}, err
	}
	o, err := b.Stat(ctx, string(sum))
	return o.Modified, err
}
