package progress

import (
	"math"
	"strings"
	"testing"
)

func TestSize_IsForPeople(t *testing.T) {
	for bytes, want := range map[float64]string{
		0: "0 B", 0.5: "0.5 B", 7: "7 B", 999: "999 B", 999.7: "1000 B", 1000: "1000 B", 1016: "1016 B", 1023: "1023 B", 1023.6: "1 KiB", 1024: "1 KiB",
		1536: "1.5 KiB", 10.24 * 1024: "10.2 KiB", 100 * 1024: "100 KiB", 1000 * 1024: "1000 KiB", 1023 << 20: "1023 MiB", 16 << 20: "16 MiB", 3.4 * (1 << 20): "3.4 MiB",
		1 << 30: "1 GiB", 1 << 40: "1 TiB", 5000 << 40: "5000 TiB", -1016: "-1016 B", -5 << 20: "-5 MiB",
	} {
		if got := Size(bytes); got != want {
			t.Errorf("%v bytes are %q, want %q", bytes, got, want)
		}
	}
	for bytes := 0.001; bytes < math.MaxInt64; bytes *= 1.001 {
		if got := Size(bytes); strings.Contains(got, "e") {
			t.Fatalf("%v bytes are %q", bytes, got)
		}
	}
}
