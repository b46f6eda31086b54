package export

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // what stores name the bytes by that show no other sum
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
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
	if key := w.again(trailer); key != "" {
		w.name = w.bucket.url(key)
		return w.bucket.refuses(w.ctx, key, w.file.Bytes(), trailer)
	}
	part := 0
	if n := len(w.there); n > 0 {
		part = w.there[n-1].part + 1
	}
	key := w.key(part)
	etag, err := w.bucket.put(w.ctx, key, w.file.Bytes(), trailer)
	if err == nil {
		err = w.bucket.refuses(w.ctx, key, w.file.Bytes(), trailer)
	}
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

// again is the key of a file that has these rows and no others, of a run that came no further; empty:
// there is none.
func (w *writer) again(trailer Trailer) string {
	if w.header.Repeats {
		return ""
	}
	for i := len(w.there) - 1; i >= max(0, len(w.there)-sameAs); i-- {
		key := w.key(w.there[i].part)
		if there, err := w.bucket.says(w.ctx, key, w.there[i].etag); err == nil && there == trailer {
			return key
		}
	}
	return ""
}

// sums are those of an object's bytes.
type sums struct{ sha256, md5 string } // in base64, and as an ETag has it

func sumsOf(body []byte) sums {
	long, short := sha256.Sum256(body), md5.Sum(body) //nolint:gosec // what stores name the bytes by that show no other sum
	return sums{base64.StdEncoding.EncodeToString(long[:]), hex.EncodeToString(short[:])}
}

// compare wants a store to show the bytes' SHA-256; of one that keeps none the ETag, which is their MD5.
func (s sums) compare(head *s3.HeadObjectOutput) error {
	switch there, etag := aws.ToString(head.ChecksumSHA256), strings.Trim(aws.ToString(head.ETag), `"`); {
	case there == s.sha256 && there != "", there == "" && etag == s.md5 && etag != "":
		return nil
	case there != "":
		return errors.New("its SHA-256 is another one than that of what was written")
	}
	return errors.New("the store shows no SHA-256 of it, and an ETag that is not the MD5 of what was written")
}

// put makes an object if there is none of its name, and compares it with what was sent.
func (b *Bucket) put(ctx context.Context, key string, body []byte, trailer Trailer) (etag string, err error) {
	sums := sumsOf(body)
	err = b.write(ctx, key, body, sums, trailer)
	exists := status(err) == http.StatusPreconditionFailed // perhaps by this request, and its first answer was lost
	if err != nil && !exists {
		return "", b.failure(err)
	}
	head, err := b.head(ctx, key)
	if err == nil {
		etag = aws.ToString(head.ETag)
		if there := aws.ToInt64(head.ContentLength); there != int64(len(body)) {
			err = fmt.Errorf("it has %d bytes, and %d were written", there, len(body))
		} else {
			err = sums.compare(head)
		}
	}
	switch {
	case err == nil:
		return etag, nil
	case exists:
		return "", fmt.Errorf("%s appeared while its rows were on the way, and is another one: %w", b.url(key), err)
	}
	return "", fmt.Errorf("look at %s again: %w", b.url(key), err)
}

func (b *Bucket) write(ctx context.Context, key string, body []byte, sums sums, trailer Trailer) error {
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.place.Bucket, Key: &key, Body: bytes.NewReader(body), ContentType: aws.String(contentType), IfNoneMatch: aws.String("*"), ChecksumSHA256: &sums.sha256,
		Metadata: map[string]string{metaRows: strconv.Itoa(trailer.Rows), metaSum: trailer.SHA256, metaObject: sums.sha256, metaMD5: sums.md5},
	})
	return err
}

// refuses finds out, once for each process, whether the store refuses to write over an object. It writes the
// same bytes again, so a store that ignores the condition still has the same rows.
func (b *Bucket) refuses(ctx context.Context, key string, body []byte, trailer Trailer) error {
	if b.keeps {
		return nil
	}
	err := b.write(ctx, key, body, sumsOf(body), trailer)
	switch answer := status(err); {
	case err == nil:
		return &Refusal{Err: errors.New("PutObject: the store wrote over an object, on the condition that there is none"), Hint: needsCondition}
	case answer == http.StatusPreconditionFailed:
		b.keeps = true
		return nil
	case answer == http.StatusForbidden, answer == http.StatusConflict: // this object is locked: the answer shows nothing about others
		return nil
	}
	return b.failure(err)
}
