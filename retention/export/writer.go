package export

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// fileBytes is what a file is in memory until it is sent: it ends behind the row that reaches that.
const fileBytes = 8 << 20

// sameAs is how many files of a slice are asked whether they have the rows already.
const sameAs = 100

const contentType = "application/zstd"

// writer makes the files of one call of Bucket.Write.
type writer struct {
	ctx    context.Context
	bucket *Bucket
	slice  Slice
	header *Header
	there  []listed // files of the slice

	file    bytes.Buffer
	encoder *encoder // nil: the next row begins a file

	name string // of the last file
	size int64  // of those that were written
}

func (w *writer) row(values []Value) error {
	if w.encoder == nil {
		w.file = bytes.Buffer{} // a request that failed may still read the last one
		e, err := newEncoder(&w.file, w.header)
		if err != nil {
			return err
		}
		w.encoder = e
	}
	if err := w.encoder.row(w.header.Columns, values); err != nil {
		return err
	}
	if w.file.Len() < fileBytes {
		return nil
	}
	return w.end()
}

// end stores the file that was begun.
func (w *writer) end() error {
	if w.encoder == nil {
		return nil
	}
	trailer, err := w.encoder.end()
	w.encoder = nil
	if err != nil {
		return err
	}
	if w.again(trailer) {
		return nil
	}
	part := 0
	if n := len(w.there); n > 0 {
		part = w.there[n-1].part + 1
	}
	key := w.key(part)
	etag, err := w.bucket.put(w.ctx, key, w.file.Bytes(), trailer)
	if err != nil {
		return err
	}
	w.bucket.known[key] = known{etag, trailer}
	w.there = append(w.there, listed{part, etag})
	w.name, w.size = w.bucket.url(key), w.size+int64(w.file.Len())
	return nil
}

func (w *writer) key(part int) string {
	return w.bucket.key(w.slice.folder() + "/" + w.slice.file(part))
}

// again reports whether a file has these rows and no others, of a run that came no further. What it
// says of itself is not believed: it is read.
func (w *writer) again(trailer Trailer) bool {
	for i := len(w.there) - 1; i >= max(0, len(w.there)-sameAs); i-- {
		key := w.key(w.there[i].part)
		if says, err := w.bucket.says(w.ctx, key, w.there[i].etag); err != nil || says != trailer {
			continue
		}
		if there, err := w.bucket.read(w.ctx, key); err == nil && there == trailer {
			w.name = w.bucket.url(key)
			return true
		}
	}
	return false
}

// put makes an object if there is none of its name, and compares it with what was sent.
func (b *Bucket) put(ctx context.Context, key string, body []byte, trailer Trailer) (etag string, err error) {
	digest := sha256.Sum256(body)
	sum := base64.StdEncoding.EncodeToString(digest[:])
	_, err = b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.place.Bucket, Key: &key, Body: bytes.NewReader(body), ContentType: aws.String(contentType), IfNoneMatch: aws.String("*"), ChecksumSHA256: &sum,
		Metadata: map[string]string{metaRows: strconv.Itoa(trailer.Rows), metaSum: trailer.SHA256},
	})
	exists := status(err) == http.StatusPreconditionFailed // perhaps by this request, and its first answer was lost
	if err != nil && !exists {
		return "", b.failure(err)
	}
	etag, err = b.compare(ctx, key, sum, int64(len(body)), trailer)
	switch {
	case err == nil:
		return etag, nil
	case exists:
		return "", fmt.Errorf("%s appeared while its rows were on the way, and is another one: %w", b.url(key), err)
	}
	return "", fmt.Errorf("look at %s again: %w", b.url(key), err)
}

// compare wants an object to have the bytes that were sent. A store that shows no checksum has the
// object read back.
func (b *Bucket) compare(ctx context.Context, key, sum string, size int64, trailer Trailer) (etag string, err error) {
	head, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.place.Bucket, Key: &key, ChecksumMode: types.ChecksumModeEnabled})
	if err != nil {
		return "", b.failure(err)
	}
	if there := aws.ToInt64(head.ContentLength); there != size {
		return "", fmt.Errorf("it has %d bytes, and %d were written", there, size)
	}
	switch aws.ToString(head.ChecksumSHA256) {
	case sum:
	case "":
		there, err := b.read(ctx, key)
		if err != nil {
			return "", err
		}
		if there != trailer {
			return "", errors.New("it has other rows than were written")
		}
	default:
		return "", errors.New("its SHA-256 is another one than that of what was written")
	}
	return aws.ToString(head.ETag), nil
}
