package maintenance

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Somebody else's publication that goes meanwhile is no reason to stop.
func TestSurveyor_LooksAgainWhereAPublicationWasDropped(t *testing.T) {
	dropped, other := fmt.Errorf("look: %w", &pgconn.PgError{Code: "42704"}), errors.New("another one")
	for name, tt := range map[string]struct {
		answers []error
		looks   int
		want    error
	}{
		"nothing happens": {[]error{nil}, 1, nil},
		"once":            {[]error{dropped, nil}, 2, nil},
		"another error":   {[]error{dropped, other, nil}, 2, other},
		"without an end":  {[]error{dropped, dropped, dropped, dropped, dropped, nil}, 5, dropped},
	} {
		looks := 0
		err := whileDropped(func() error { looks++; return tt.answers[looks-1] })
		if looks != tt.looks || !errors.Is(err, tt.want) {
			t.Errorf("%s: %d looks, %v", name, looks, err)
		}
	}
}
