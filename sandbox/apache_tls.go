package sandbox

import (
	"fmt"
	"os"
	"strings"
)

// ApacheTLS is a listener with TLS. All files are PEM; the key is PKCS #8.
type ApacheTLS struct {
	Name              string // in capitals, such as MUTUAL
	CertFile, KeyFile string // what it presents
	ClientCAFile      string // if set, clients need a certificate of this authority
}

// settings have the files' text, so that the broker needs no store of its own.
func (l ApacheTLS) settings() ([]string, error) {
	prefix := "listener.name." + strings.ToLower(l.Name) + ".ssl."
	lines := []string{prefix + "keystore.type=PEM"}
	files := map[string]string{"keystore.certificate.chain": l.CertFile, "keystore.key": l.KeyFile}
	if l.ClientCAFile != "" {
		lines = append(lines, prefix+"client.auth=required", prefix+"truststore.type=PEM")
		files["truststore.certificates"] = l.ClientCAFile
	}
	for name, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("listener %s: %w", l.Name, err)
		}
		lines = append(lines, prefix+name+"="+strings.ReplaceAll(string(text), "\n", `\n`))
	}
	return lines, nil
}
