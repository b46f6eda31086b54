package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"
)

// Place is a bucket of S3, or of a store with its protocol.
type Place struct {
	Bucket, Prefix string
	Region         string // empty: that of the environment
	Endpoint       string // URL of another store than AWS's; empty: AWS's
	PathStyle      bool   // the bucket is in the path, and not in the name of the host
}

// Bucket holds the files as objects. An object appears whole or not at all, and no object is ever
// written over: each is written on the condition that there is none of its name. So a process that
// was given up for dead and goes on cannot replace what the next one has written.
type Bucket struct {
	client *s3.Client
	place  Place
	answer time.Duration    // how long a look may take
	slice  string           // whose files are in known
	known  map[string]known // by key
	keeps  bool             // the store was seen to refuse a write over an object
}

// known is what an object says that it holds, as long as the store names the same version of it.
type known struct {
	etag string
	Trailer
}

// silence is how long a store may take or give not a single byte.
const silence = time.Minute

// lookAnswer is how long a look at the bucket may take, with what is tried again: many times what a store
// needs for it. A file may take as long as it needs.
const lookAnswer = 10 * time.Second

// fallbackRegion signs requests to a store that has no regions.
const fallbackRegion = "us-east-1"

// OpenBucket asks for nothing yet: neither for the bucket nor for credentials, which come from AWS's
// usual chain whenever they are needed.
func OpenBucket(ctx context.Context, place Place) (*Bucket, error) {
	return openBucket(ctx, place, silence)
}

func openBucket(ctx context.Context, place Place, silence time.Duration, more ...func(*s3.Options)) (*Bucket, error) {
	client := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		dial := t.DialContext
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &watched{conn, silence}, nil
		}
	})
	cfg, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(place.Region), awsconfig.WithHTTPClient(client), awsconfig.WithLogger(logging.Nop{}))
	if err != nil {
		return nil, fmt.Errorf("read the configuration of AWS: %w", err)
	}
	if cfg.Region == "" && place.Endpoint == "" {
		return nil, &Refusal{Err: errors.New("no AWS region is known"), Key: "region", Hint: "set it, or AWS_REGION"}
	}
	if cfg.Region == "" {
		cfg.Region = fallbackRegion
	}
	return &Bucket{place: place, answer: lookAnswer, known: make(map[string]known), client: s3.NewFromConfig(cfg, append(more, func(o *s3.Options) {
		o.UsePathStyle = place.PathStyle
		if place.Endpoint != "" {
			o.BaseEndpoint = &place.Endpoint
		}
		// Checksums are this package's own: those of the client need a form that not every store knows.
		o.RequestChecksumCalculation, o.ResponseChecksumValidation = aws.RequestChecksumCalculationWhenRequired, aws.ResponseChecksumValidationWhenRequired
	})...)}, nil
}

// watched is a connection that fails once nothing went through it for a while. A large part may
// take as long as it needs.
type watched struct {
	net.Conn
	silence time.Duration
}

func (c *watched) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.silence)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write also keeps the read waiting that goes on meanwhile.
func (c *watched) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.silence)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// key is an object's name in the bucket.
func (b *Bucket) key(name string) string {
	if b.place.Prefix == "" {
		return name
	}
	return b.place.Prefix + "/" + name
}

// Write implements Store. Many bytes make several files.
func (b *Bucket) Write(ctx context.Context, s Slice, header *Header, each func(row func([]Value) error) error) (name string, size int64, err error) {
	there, err := b.list(ctx, s)
	if err != nil {
		return "", 0, err
	}
	w := &writer{ctx: ctx, bucket: b, slice: s, header: header, there: there}
	if err := each(w.row); err != nil {
		return "", 0, err
	}
	if err := w.end(); err != nil {
		return "", 0, err
	}
	return w.name, w.size, nil
}

func (b *Bucket) url(key string) string { return "s3://" + b.place.Bucket + "/" + key }

// listed is an object as a list shows it.
type listed struct {
	part int
	etag string
}

// list are the files of a slice.
func (b *Bucket) list(ctx context.Context, s Slice) (all []listed, err error) {
	folder := b.key(s.folder()) + "/"
	if of := folder + s.hour(); b.slice != of {
		b.slice = of
		clear(b.known)
	}
	pages := s3.NewListObjectsV2Paginator(b.client, &s3.ListObjectsV2Input{Bucket: &b.place.Bucket, Prefix: aws.String(folder + s.hour() + "-")})
	for pages.HasMorePages() {
		look, cancel := context.WithTimeout(ctx, b.answer)
		page, err := pages.NextPage(look)
		cancel()
		if err != nil {
			return nil, b.failure(err)
		}
		for _, object := range page.Contents {
			if n, mine := s.part(strings.TrimPrefix(aws.ToString(object.Key), folder)); mine {
				all = append(all, listed{n, aws.ToString(object.ETag)})
			}
		}
	}
	slices.SortFunc(all, func(a, b listed) int { return cmp.Compare(a.part, b.part) })
	return all, nil
}

// What an object says of itself, beside its bytes.
const metaRows, metaSum, metaObject, metaMD5 = "cdc-relay-rows", "cdc-relay-sha256", "cdc-relay-object-sha256", "cdc-relay-md5"

// says is what an object holds, by what it says of itself and what the store says of its bytes;
// nothing if the two differ.
func (b *Bucket) says(ctx context.Context, key, etag string) (Trailer, error) {
	if k, ok := b.known[key]; ok && etag != "" && k.etag == etag {
		return k.Trailer, nil
	}
	head, err := b.head(ctx, key)
	if err != nil {
		return Trailer{}, err
	}
	var t Trailer
	own := sums{sha256: head.Metadata[metaObject], md5: head.Metadata[metaMD5]}
	if rows, err := strconv.Atoi(head.Metadata[metaRows]); err == nil && own.compare(head) == nil {
		t = Trailer{rows, head.Metadata[metaSum]}
	}
	b.known[key] = known{aws.ToString(head.ETag), t}
	return t, nil
}

func (b *Bucket) head(ctx context.Context, key string) (*s3.HeadObjectOutput, error) {
	head, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.place.Bucket, Key: &key, ChecksumMode: types.ChecksumModeEnabled})
	return head, b.failure(err)
}

// probeFile is the name of an object that is never made.
const probeFile = ".cdc-relay-probe"

// Probe implements Store. It writes an object with a checksum that is wrong. A store looks at the
// rights first, and then refuses the object.
func (b *Bucket) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.answer)
	defer cancel()
	key := b.key(probeFile)
	if _, err := b.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &b.place.Bucket, Prefix: &key, MaxKeys: aws.Int32(1)}); err != nil {
		return b.failure(err)
	}
	if _, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.place.Bucket, Key: &key}); err != nil && status(err) != http.StatusNotFound {
		return b.failure(err)
	}
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.place.Bucket, Key: &key, Body: strings.NewReader("probe"), IfNoneMatch: aws.String("*"),
		ContentMD5: aws.String("AAAAAAAAAAAAAAAAAAAAAA=="), ChecksumSHA256: aws.String("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
	})
	if answer := status(err); answer == http.StatusBadRequest || answer == http.StatusPreconditionFailed {
		return nil
	}
	return b.failure(err)
}
