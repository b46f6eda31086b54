package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/encode"
	"github.com/twmb/franz-go/pkg/sr"
)

// Version is a version of a subject.
type Version struct {
	Number int
	ID     uint32
}

func (v Version) String() string { return fmt.Sprintf("version %d, id %d", v.Number, v.ID) }

// Standing is what the registry has of a schema that is to be registered under its subject.
type Standing struct {
	Have   *Version // that has the schema; nil: none
	Latest *Version // nil: there is no such subject

	// What the registry's check of compatibility with the latest version answers. It is asked only
	// where the schema would become the next version.
	Checked    bool // it has such a check
	Compatible bool
	Objections string // why it is not compatible; may be empty
}

// Standing looks at the subject of s and writes nothing.
func (c *Client) Standing(ctx context.Context, s *encode.Schema) (*Standing, error) {
	wanted, cl, done, err := c.clientFor(s)
	if err != nil {
		return nil, err
	}
	defer done()
	latest, err := cl.SchemaByVersion(ctx, s.Subject, -1)
	if answered(err, http.StatusNotFound, sr.ErrSubjectNotFound.Code, sr.ErrVersionNotFound.Code) {
		return &Standing{}, nil
	}
	if err != nil {
		return nil, c.unregistered(s, err)
	}
	out := &Standing{Latest: version(&latest)}
	if out.Latest.ID == 0 {
		return nil, c.unregistered(s, errors.New("the answer has no schema"))
	}
	if same(latest.Schema, wanted) {
		out.Have = out.Latest
		return out, nil
	}
	found, err := cl.LookupSchema(ctx, s.Subject, wanted)
	switch {
	case err == nil && version(&found).ID != 0:
		out.Have = version(&found)
		return out, nil
	case err != nil && !answered(err, http.StatusNotFound):
		return nil, c.unregistered(s, err)
	}
	if out.Have, err = c.older(ctx, cl, s, wanted, out.Latest.Number); err != nil || out.Have != nil {
		return out, err
	}
	return out, c.compare(ctx, cl, s, wanted, out)
}

// maxOlder bounds the versions that are compared.
const maxOlder = 100

// older finds the version that has a schema, among those before the latest one. A look-up by content
// misses schemas that another writer formatted, in some registries; registered again, an old schema
// would be the latest.
func (c *Client) older(ctx context.Context, cl *sr.Client, s *encode.Schema, wanted sr.Schema, latest int) (*Version, error) {
	for n := latest - 1; n > max(0, latest-1-maxOlder); n-- {
		found, err := cl.SchemaByVersion(ctx, s.Subject, n)
		switch {
		case answered(err, http.StatusNotFound): // it was deleted
		case err != nil:
			return nil, c.unregistered(s, err)
		case same(found.Schema, wanted):
			return version(&found), nil
		}
	}
	return nil, nil
}

// compare asks for the check of compatibility.
func (c *Client) compare(ctx context.Context, cl *sr.Client, s *encode.Schema, wanted sr.Schema, out *Standing) error {
	result, err := cl.CheckCompatibility(sr.WithParams(ctx, sr.Verbose), s.Subject, -1, wanted)
	if answered(err, http.StatusNotFound) || answered(err, http.StatusMethodNotAllowed) || answered(err, http.StatusNotImplemented) {
		return nil
	}
	if err != nil {
		return c.unregistered(s, err)
	}
	out.Checked, out.Compatible, out.Objections = true, result.Is, shortened(strings.Join(result.Messages, "; "))
	return nil
}

// Register makes s the next version of its subject, and returns which one it is. A schema that the
// subject has already gets no further version.
func (c *Client) Register(ctx context.Context, s *encode.Schema) (*Version, error) {
	wanted, cl, done, err := c.clientFor(s)
	if err != nil {
		return nil, err
	}
	defer done()
	id, err := cl.RegisterSchema(ctx, s.Subject, wanted, -1, -1)
	if err != nil {
		return nil, c.unregistered(s, err)
	}
	latest, err := cl.SchemaByVersion(ctx, s.Subject, -1)
	if err != nil {
		return nil, c.unregistered(s, err)
	}
	if id <= 0 || latest.ID != id {
		return nil, c.failed(s, fault.KindRetry, fault.ReasonRegistryAnswer,
			fmt.Errorf("it answered id %d, and the latest version of the subject is %d with id %d", id, latest.Version, latest.ID),
			"somebody else may be registering under it: run `cdc-relay setup` again")
	}
	return version(&latest), nil
}

// clientFor returns s as a registry takes it, and a client, until done.
func (c *Client) clientFor(s *encode.Schema) (wanted sr.Schema, cl *sr.Client, done func() (last int), err error) {
	wanted.Schema = s.Text
	if err := wanted.Type.UnmarshalText([]byte(s.Kind)); err != nil {
		return wanted, nil, nil, fmt.Errorf("register %s: %w", s.File, err)
	}
	if cl, done, err = c.client(c.begins()); err != nil {
		return wanted, nil, nil, c.unregistered(s, err)
	}
	return wanted, cl, done, nil
}

// version is zero for what is none.
func version(s *sr.SubjectSchema) *Version {
	if s.ID <= 0 || int64(s.ID) > 1<<31-1 || s.Version <= 0 {
		return &Version{}
	}
	return &Version{Number: s.Version, ID: uint32(s.ID)}
}

// answered reports whether err is an answer with this status, and one of the codes if there are any.
func answered(err error, status int, codes ...int) bool {
	e, ok := errors.AsType[*sr.ResponseError](err)
	if !ok || e.StatusCode != status {
		return false
	}
	for _, code := range codes {
		if e.ErrorCode == code {
			return true
		}
	}
	return len(codes) == 0
}

// same compares schemas, whatever their spaces and the order of their members.
func same(has, wanted sr.Schema) bool {
	return len(has.References) == 0 && has.Type == wanted.Type && sameJSON(has.Schema, wanted.Schema)
}

func sameJSON(a, b string) bool {
	read := func(text string) (v any, err error) {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		err = d.Decode(&v)
		return v, err
	}
	x, errX := read(a)
	y, errY := read(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

func (c *Client) failed(s *encode.Schema, kind fault.Kind, reason string, err error, hint string) error {
	return &fault.Error{Kind: kind, Reason: reason, Op: "register", Subject: fmt.Sprintf("schema %s under subject %s", s.File, s.Subject), Err: err, Hint: hint}
}

// unregistered explains why a schema could not be registered.
func (c *Client) unregistered(s *encode.Schema, err error) error {
	if refusal, ok := errors.AsType[*sr.ResponseError](err); ok {
		switch {
		case refusal.StatusCode == http.StatusConflict:
			return c.Incompatible(s, said(refusal).Error())
		case refusal.ErrorCode == sr.ErrOperationNotPermitted.Code:
			return c.failed(s, fault.KindRefused, fault.ReasonRegistryRefused, said(refusal), "have the registry's mode, or that of the subject, be READWRITE")
		case refusal.StatusCode == http.StatusUnprocessableEntity:
			return c.failed(s, fault.KindRefused, fault.ReasonSchemaUnusable, said(refusal), "correct the file, or outbox[].schema.subject")
		}
	}
	failure, ok := errors.AsType[*fault.Error](c.explain("", err))
	if !ok {
		return err
	}
	hint := failure.Hint
	switch failure.Reason {
	case fault.ReasonRegistryUnreachable:
		hint = "start the registry, or correct kafka.registry.url; then run `cdc-relay setup` again"
	case fault.ReasonRegistryRefused:
		if _, secret := errors.AsType[*secretError](err); !secret {
			hint = "allow the account of kafka.registry to register under this subject, or run `cdc-relay setup` with one that may (--set kafka.registry.username=…)"
		}
	}
	return c.failed(s, failure.Kind, failure.Reason, failure.Err, hint)
}

// Incompatible is the error of a schema that the registry does not take beside the versions it has.
func (c *Client) Incompatible(s *encode.Schema, objections string) error {
	if objections == "" {
		objections = "the registry calls it incompatible with the version it has"
	}
	return c.failed(s, fault.KindRefused, fault.ReasonSchemaUnusable, errors.New(objections),
		"change the file so that it is compatible, or the subject's compatibility level in the registry; or register it under another subject")
}
