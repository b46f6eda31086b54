package pgoutput

import (
	"reflect"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/defaults"
)

func TestDecoderOptions_CommentsStateTheDefaults(t *testing.T) {
	if n := defaults.Compare(t, "decoder.go", reflect.TypeFor[Options]().Name(), Options{}.withDefaults(), nil); n < 2 {
		t.Errorf("%d comments name a default", n)
	}
}
