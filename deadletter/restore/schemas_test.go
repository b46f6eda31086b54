package restore

import (
	"context"
	"errors"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/encode"
)

// subject is a registry with one subject, whose versions have these numbers; zero is a version that
// was deleted.
type subject struct {
	numbers []uint32
	err     error // of version 1
	asked   int
}

func (s *subject) Schema(_ context.Context, name string, version int) (*encode.Schema, error) {
	s.asked++
	if version == 0 {
		version = len(s.numbers)
	}
	switch {
	case version == 1 && s.err != nil:
		return nil, s.err
	case version > len(s.numbers) || s.numbers[version-1] == 0:
		return nil, &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonUnknownSubject}
	}
	return &encode.Schema{Subject: name, Version: version, ID: s.numbers[version-1]}, nil
}

func (s *subject) Known(context.Context, uint32) (encode.Kind, bool, error) { return "", false, nil }

func TestNumbered_FindsTheVersionWithTheSchema(t *testing.T) {
	away := &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonRegistryUnreachable}
	for name, tt := range map[string]struct {
		of      subject
		version int
		err     error
	}{
		"the latest":                {subject{numbers: []uint32{5, 7}}, 2, nil},
		"the first":                 {subject{numbers: []uint32{7, 5, 9}}, 1, nil},
		"before a deleted one":      {subject{numbers: []uint32{7, 0, 0, 9}}, 1, nil},
		"deleted itself":            {subject{numbers: []uint32{0, 9}}, 0, errNoSchema},
		"never there":               {subject{numbers: []uint32{1, 2, 3}}, 0, errNoSchema},
		"the registry is away":      {subject{numbers: []uint32{7, 9}, err: away}, 0, away},
		"the subject was deleted":   {subject{numbers: []uint32{0}}, 0, errNoSchema},
		"never there, of one alone": {subject{numbers: []uint32{1}}, 0, errNoSchema},
	} {
		t.Run(name, func(t *testing.T) {
			n := &numbered{Registry: &tt.of, id: 7, gone: map[string]bool{}}
			s, err := n.Schema(t.Context(), "orders-value", 0)
			if !errors.Is(err, tt.err) || err == nil && (s.ID != 7 || s.Version != tt.version) {
				t.Fatalf("%+v, %v", s, err)
			}
			asked := tt.of.asked
			if _, err := n.Schema(t.Context(), "orders-value", 0); !errors.Is(err, tt.err) || errors.Is(err, errNoSchema) && tt.of.asked != asked {
				t.Errorf("again: %v after %d more questions", err, tt.of.asked-asked)
			}
		})
	}
}
