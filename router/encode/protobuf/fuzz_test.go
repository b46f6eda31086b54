package protobuf

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// FuzzProtobuf holds the walk against the library: what the walk takes, the library takes, and it
// means the same; what the library takes, the walk takes as well, but for what is named here.
func FuzzProtobuf(f *testing.F) {
	files := []*descriptorpb.FileDescriptorProto{parsed(orders), kinds(), parsed(old), parsed(edition)}
	f.Add(0, false, []byte(placed))
	for name, values := range taken {
		for _, one := range values {
			f.Add(1, false, []byte(`{"`+name+`": `+one+`}`))
		}
	}
	f.Add(0, false, []byte(`{"card": null, "iban": "x", "tags": {"b": "2", "a": "1"}}`))
	f.Add(0, true, []byte(`{"unknown": [{"a": 1}], "state": 7}`))
	f.Add(2, false, []byte(`{"need": 1, "inner": {"n": "-3"}, "more": [{}, {"m": {"need": 7}}], "tight": [1, 2]}`))
	f.Add(3, false, []byte(`{"need": "", "inner": {"n": 1}, "byName": {"a": {"n": 0}}, "e": ["A"]}`))
	type pair struct {
		e       *Encoder
		library protoreflect.MessageType
	}
	made := map[bool][]pair{}
	for _, drop := range []bool{false, true} {
		for _, file := range files {
			e, library := both(f, file, drop)
			made[drop] = append(made[drop], pair{e, library})
		}
	}
	f.Fuzz(func(t *testing.T, which int, drop bool, payload []byte) {
		p := made[drop][uint(which)%uint(len(files))]
		value, err := p.e.Append(nil, payload)
		if err == nil {
			judged(t, p.e, p.library, payload, value)
			return
		}
		if why := (protojson.UnmarshalOptions{DiscardUnknown: drop}).Unmarshal(payload, p.library.New().Interface()); why == nil && !stricter(err.Error()) && !oddNumber.Match(payload) {
			t.Fatalf("%q is refused, and the library takes it: %v", payload, err)
		}
	})
}

// oddNumber is a number with an exponent that has no digits, which is no JSON, and the library takes
// it; or zero with one beyond a million.
var oddNumber = regexp.MustCompile(`[0-9][eE][+-]?($|[^0-9+-]|[0-9]{7})`)

// stricter reports whether a refusal is one that the library does not have.
func stricter(refusal string) bool {
	for _, part := range []string{
		"lies deeper", "is not UTF-8 text", "half of a surrogate pair",
		"a value of old.E", "a value of ed.E", // closed: the library takes any number
		"the payload has an unknown name",      // an unknown name: the library drops it with its member
		"a time such as", "a duration such as", // 24:00:00,5Z and .s
		"google.protobuf.FieldMask", // white space that is no ASCII
	} {
		if strings.Contains(refusal, part) {
			return true
		}
	}
	return false
}

// FuzzDescriptor: a descriptor of any bytes is refused or made ready, and what the library takes as
// well gives the same values. Then any payload is refused or read back.
func FuzzDescriptor(f *testing.F) {
	for _, file := range []*descriptorpb.FileDescriptorProto{parsed(orders), kinds(), parsed(old), parsed(edition)} {
		b, err := proto.Marshal(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, []byte(placed))
		f.Add(b, []byte(`{"need": 1}`))
		f.Add(b, []byte(`{}`))
	}
	f.Fuzz(func(t *testing.T, descriptor, payload []byte) {
		e, err := NewCompiler(Options{}).Compile(descriptor)
		if err != nil {
			return
		}
		value, err := e.Append(nil, payload)
		if err != nil {
			return
		}
		if _, err := e.Decode(value); err != nil {
			t.Fatalf("%q gives %x, which does not read back: %v", payload, value, err)
		}
		file := &descriptorpb.FileDescriptorProto{}
		if proto.Unmarshal(descriptor, file) != nil || bytes.Contains(descriptor, []byte(google)) && len(file.Dependency) == 0 {
			return
		}
		theirs, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
		if err != nil || theirs.Messages().Len() == 0 {
			return
		}
		judged(t, e, dynamicpb.NewMessageType(theirs.Messages().Get(0)), payload, value)
	})
}
