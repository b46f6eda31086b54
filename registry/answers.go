package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/encode"
	"github.com/twmb/franz-go/pkg/sr"
)

// maxReferences bounds the schemas that one names, directly or not.
const maxReferences = 64

// fetch reads a version with the schemas that it names.
func (c *Client) fetch(ctx context.Context, cl *sr.Client, subject string, version int) (*encode.Schema, error) {
	of := "subject " + subject
	if version == 0 {
		version = -1 // the latest
	} else {
		of = fmt.Sprintf("version %d of subject %s", version, subject)
	}
	found, err := cl.SchemaByVersion(ctx, subject, version)
	if err != nil {
		return nil, c.explain(of, err)
	}
	if found.ID <= 0 || int64(found.ID) > 1<<31-1 || found.Version <= 0 || found.Schema.Schema == "" {
		return nil, c.answered(of, errors.New("the answer has no schema with a number from 1 to 2147483647"))
	}
	if found.Type == sr.TypeProtobuf {
		ctx = sr.WithParams(ctx, sr.Format("serialized")) // descriptors; text where the registry does not know it
		if found, err = cl.SchemaByVersion(ctx, subject, found.Version); err != nil {
			return nil, c.explain(of, err)
		}
	}
	s := &encode.Schema{Subject: subject, Version: found.Version, ID: uint32(found.ID), Kind: encode.Kind(found.Type.String()), Text: found.Schema.Schema}
	r := references{c: c, cl: cl, of: of, open: map[string]bool{}, have: map[string]bool{}}
	if err := r.fetch(ctx, found.References); err != nil {
		return nil, err
	}
	s.References = r.list
	return s, nil
}

// references gathers schemas, each behind those that it names itself.
type references struct {
	c    *Client
	cl   *sr.Client
	of   string
	open map[string]bool // whose own references are being read
	have map[string]bool
	list []encode.Reference
	size int
}

func (r *references) fetch(ctx context.Context, wanted []sr.SchemaReference) error {
	for _, w := range wanted {
		key := fmt.Sprintf("%s %s %d", w.Name, w.Subject, w.Version)
		switch {
		case r.have[key]:
			continue
		case r.open[key]:
			return r.c.answered(r.of, fmt.Errorf("its references go in a circle, at %s", w.Name))
		case len(r.open)+len(r.list) >= maxReferences:
			return r.c.answered(r.of, fmt.Errorf("it refers to more than %d schemas", maxReferences))
		}
		r.open[key] = true
		found, err := r.cl.SchemaByVersion(ctx, w.Subject, w.Version)
		if err != nil {
			return r.c.explain(fmt.Sprintf("version %d of subject %s, to which %s refers", w.Version, w.Subject, r.of), err)
		}
		if err := r.fetch(ctx, found.References); err != nil {
			return err
		}
		if r.size += len(found.Schema.Schema); r.size > encode.MaxSchema {
			return r.c.answered(r.of, fmt.Errorf("with its references it is longer than %d bytes", encode.MaxSchema))
		}
		delete(r.open, key)
		r.have[key] = true
		r.list = append(r.list, encode.Reference{Name: w.Name, Text: found.Schema.Schema})
	}
	return nil
}

func (c *Client) failure(kind fault.Kind, reason, of string, err error, hint string) error {
	subject := "the schema registry"
	if of != "" {
		subject += " for " + of
	}
	return &fault.Error{Kind: kind, Reason: reason, Op: "ask", Subject: subject, Err: err, Hint: hint}
}

// answered is an answer that is no registry's.
func (c *Client) answered(of string, err error) error {
	return c.failure(fault.KindRefused, fault.ReasonRegistryAnswer, of, err, "set kafka.registry.url to the address of the registry's API; that of Apicurio ends with /apis/ccompat/v7")
}

// explain gives an error its reason and the next step.
func (c *Client) explain(of string, err error) error {
	if err == nil {
		return nil
	}
	if done, ok := errors.AsType[*fault.Error](err); ok {
		return done
	}
	if secret, ok := errors.AsType[*secretError](err); ok {
		return c.failure(fault.KindRefused, fault.ReasonRegistryRefused, of, secret.err, "correct the file that kafka.registry names; it is read at each request")
	}
	if refusal, ok := errors.AsType[*sr.ResponseError](err); ok {
		return c.refusal(of, refusal)
	}
	_, wrong := errors.AsType[*url.Error](err)
	_, lost := errors.AsType[net.Error](err)
	if errors.Is(err, errTooLong) || !wrong && !lost && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, context.DeadlineExceeded) {
		if !errors.Is(err, errTooLong) {
			err = errors.New("the answer is not the JSON of a schema registry")
		}
		return c.answered(of, err)
	}
	return c.failure(fault.KindRetry, fault.ReasonRegistryUnreachable, of, err, "rows that need it wait; start the registry, or correct kafka.registry.url")
}

// refusal explains an answer that is an error.
func (c *Client) refusal(of string, e *sr.ResponseError) error {
	said := said(e)
	switch {
	case e.StatusCode == http.StatusUnauthorized || e.StatusCode == http.StatusForbidden:
		return c.failure(fault.KindRefused, fault.ReasonRegistryRefused, of, said, "correct kafka.registry.username and password_file, or token_file, and allow that account to read subjects")
	case e.StatusCode >= 500 || e.StatusCode == http.StatusTooManyRequests || e.StatusCode == http.StatusRequestTimeout:
		return c.failure(fault.KindRetry, fault.ReasonRegistryUnreachable, of, said, "rows that need it wait until it answers")
	case e.StatusCode == http.StatusNotFound && (e.ErrorCode == sr.ErrSubjectNotFound.Code || e.ErrorCode == sr.ErrVersionNotFound.Code || e.ErrorCode == sr.ErrSchemaNotFound.Code):
		return c.failure(fault.KindRefused, fault.ReasonUnknownSubject, of, said, "register the schema, or correct outbox[].schema.subject and version; the relay tries again by itself")
	}
	if e.StatusCode/100 == 3 {
		said = fmt.Errorf("%w, which is a redirect, and is not followed", said)
	}
	return c.answered(of, said)
}

// said is what a registry answered.
func said(e *sr.ResponseError) error {
	if e.ErrorCode != 0 && e.Message != "" {
		return fmt.Errorf("it answered %d: %s", e.StatusCode, shortened(e.Message))
	}
	return fmt.Errorf("it answered %d %s", e.StatusCode, http.StatusText(e.StatusCode))
}

// shortened keeps a message of the registry on a line.
func shortened(text string) string {
	const most = 200
	text = fault.OneLine(strings.ToValidUTF8(text, "?"))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
