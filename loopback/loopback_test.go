package loopback

import "testing"

func TestIs_TakesNamesAndAddresses(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true,
		"": false, "0.0.0.0": false, "::": false, "10.0.0.1": false, "localhost.example.com": false, "127.0.0.1:80": false, "[::1]": false,
	} {
		if got := Is(host); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
}
