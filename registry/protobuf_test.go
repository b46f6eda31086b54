package registry

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/router/encode"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Protobuf is asked for as descriptors, of the version at hand and of all that it refers to.
func TestSchema_ProtobufComesAsDescriptors(t *testing.T) {
	r := fake(t)
	register(t, r, "line", sr.Schema{Type: sr.TypeProtobuf, Schema: "message Line {}"})
	register(t, r, "order-value", sr.Schema{Type: sr.TypeProtobuf, Schema: "message Order {}", References: []sr.SchemaReference{{Name: "line.proto", Subject: "line", Version: 1}}})
	descriptor := func(name string) string {
		b, err := proto.Marshal(&descriptorpb.FileDescriptorProto{Name: proto.String(name + ".proto"), MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String(name)}}})
		if err != nil {
			t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(b)
	}
	var asked []string
	serializes := true
	r.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		asked = append(asked, req.URL.String())
		if !serializes || req.URL.Query().Get("format") != "serialized" {
			return false
		}
		w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
		if strings.Contains(req.URL.Path, "/line/") {
			_, _ = fmt.Fprintf(w, `{"subject": "line", "version": 1, "id": 1, "schemaType": "PROTOBUF", "schema": %q}`, descriptor("Line"))
		} else {
			_, _ = fmt.Fprintf(w, `{"subject": "order-value", "version": 1, "id": 2, "schemaType": "PROTOBUF", "schema": %q, "references": [{"name": "line.proto", "subject": "line", "version": 1}]}`, descriptor("Order"))
		}
		return true
	})
	c := New(Config{URLs: []string{r.URL()}})
	s, err := c.Schema(t.Context(), "order-value", 0)
	if err != nil || s.Kind != encode.Protobuf || s.ID != 2 || s.Version != 1 || s.Text != descriptor("Order") || len(s.References) != 1 || s.References[0].Text != descriptor("Line") {
		t.Fatalf("%+v, %v; asked %q", s, err, asked)
	}
	if len(asked) != 3 || !strings.Contains(asked[1], "/versions/1?format=serialized") {
		t.Errorf("asked %q", asked)
	}
	if _, err := encode.Compile(*s, encode.Options{Kind: encode.Protobuf}); err != nil {
		t.Error(err)
	}

	serializes = false // Apicurio
	if s, err = c.Schema(t.Context(), "order-value", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := encode.Compile(*s, encode.Options{Kind: encode.Protobuf}); err == nil || !strings.Contains(err.Error(), "set schema.file to a descriptor set") {
		t.Errorf("text is taken for a descriptor: %v", errors.Unwrap(err))
	}
}
