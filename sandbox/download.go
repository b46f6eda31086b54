package sandbox

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// RepositoryVariable names the environment variable for the Maven repository that
// PostgreSQL is downloaded from, for machines that reach only a mirror.
const RepositoryVariable = "CDC_RELAY_POSTGRES_REPOSITORY"

// CacheVariable names the environment variable for the folder of downloads.
const CacheVariable = "CDC_RELAY_CACHE"

// releases are the builds that embedded-postgres publishes, by major version.
var releases = map[string]embeddedpostgres.PostgresVersion{
	"14": embeddedpostgres.V14,
	"15": embeddedpostgres.V15,
	"16": embeddedpostgres.V16,
	"17": embeddedpostgres.V17,
	"18": embeddedpostgres.V18,
}

// CacheDir is where downloads are kept: the user's cache, and for root a folder
// outside its home, which the account that runs the server cannot read.
func CacheDir() (string, error) {
	if dir := os.Getenv(CacheVariable); dir != "" {
		return dir, nil
	}
	if os.Geteuid() == 0 && runtime.GOOS == "linux" {
		return "/var/cache/cdc-relay", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for downloads: %w: set %s", err, CacheVariable)
	}
	return filepath.Join(dir, "cdc-relay"), nil
}

// artifact is one build of the server in a Maven repository.
type artifact struct {
	platform string
	version  string
}

func artifactFor(major string) (artifact, error) {
	if major == "" {
		major = Majors[len(Majors)-1]
	}
	version, ok := releases[major]
	if !ok {
		return artifact{}, fmt.Errorf("download PostgreSQL %s: only %s can be downloaded", major, strings.Join(Majors, ", "))
	}
	arch := runtime.GOARCH
	if arch == "arm64" {
		arch = "arm64v8"
	}
	if isFile("/etc/alpine-release") {
		arch += "-alpine"
	}
	return artifact{platform: runtime.GOOS + "-" + arch, version: string(version)}, nil
}

func (a artifact) dir(cache string) string {
	return filepath.Join(cache, "postgres-"+a.version+"-"+a.platform)
}

func (a artifact) url(repository string) string {
	name := "embedded-postgres-binaries-" + a.platform
	return fmt.Sprintf("%s/io/zonky/test/postgres/%s/%s/%s-%s.jar", repository, name, a.version, name, a.version)
}

// downloadedDirs are the folders of an earlier download, if there was one.
func downloadedDirs(major string) []string {
	cache, err1 := CacheDir()
	a, err2 := artifactFor(major)
	if err1 != nil || err2 != nil {
		return nil
	}
	return []string{filepath.Join(a.dir(cache), "bin")}
}

// repository is where embedded-postgres itself downloads from. Its setting has no
// getter.
func repository() (string, error) {
	if base := os.Getenv(RepositoryVariable); base != "" {
		return strings.TrimRight(base, "/"), nil
	}
	field := reflect.ValueOf(embeddedpostgres.DefaultConfig()).FieldByName("binaryRepositoryURL")
	if !field.IsValid() || field.Kind() != reflect.String || field.String() == "" {
		return "", fmt.Errorf("download PostgreSQL: no repository known: set %s to the address of a Maven repository", RepositoryVariable)
	}
	return field.String(), nil
}

// downloadPostgres fetches a server once. Several processes may ask at the same
// time; one downloads and the others wait for it.
func downloadPostgres(ctx context.Context, major string, log io.Writer) (string, error) {
	a, err := artifactFor(major)
	if err != nil {
		return "", err
	}
	base, err := repository()
	if err != nil {
		return "", err
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("download PostgreSQL: %w: set %s to a folder that can be written", err, CacheVariable)
	}
	unlock, err := Locked(filepath.Join(cache, "download.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	bin := filepath.Join(a.dir(cache), "bin")
	if isFile(filepath.Join(bin, "postgres")) {
		return bin, nil
	}
	if log == nil {
		log = io.Discard
	}
	jar, err := fetch(ctx, a, a.url(base), a.dir(cache), log)
	if err != nil {
		return "", fmt.Errorf("download PostgreSQL %s for %s: %w", a.version, a.platform, err)
	}
	if err := unpack(jar, a.dir(cache)); err != nil {
		return "", fmt.Errorf("unpack PostgreSQL %s: %w", a.version, err)
	}
	return bin, nil
}

// Locked holds a file against other processes until the returned function is
// called; the kernel releases it when the process dies.
func Locked(name string) (func(), error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, errors.Join(err, file.Close()))
	}
	return func() { _ = file.Close() }, nil
}

func fetch(ctx context.Context, a artifact, address, to string, log io.Writer) ([]byte, error) {
	response, err := request(ctx, address)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	size := "of unknown size"
	if response.ContentLength > 0 {
		size = fmt.Sprintf("%.1f MB", float64(response.ContentLength)/1e6)
	}
	fmt.Fprintf(log, "downloading PostgreSQL %s for %s, %s, once, into %s\n", a.version, a.platform, size, to)
	jar, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	return jar, verify(ctx, address, jar)
}

func request(ctx context.Context, address string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("the repository answered %s", response.Status)
	}
	return response, nil
}

// verify compares with the strongest checksum that the repository has beside the
// file. It guards against a damaged transfer, not against the repository.
func verify(ctx context.Context, address string, content []byte) error {
	sums := []struct {
		suffix string
		hash   func() hash.Hash
	}{{".sha512", sha512.New}, {".sha256", sha256.New}, {".sha1", sha1.New}}
	for _, sum := range sums {
		response, err := request(ctx, address+sum.suffix)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			continue
		}
		text, err := io.ReadAll(io.LimitReader(response.Body, 1024))
		response.Body.Close()
		if err != nil {
			return err
		}
		h := sum.hash()
		h.Write(content)
		want, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		got := hex.EncodeToString(h.Sum(nil))
		if subtle.ConstantTimeCompare([]byte(strings.ToLower(want)), []byte(got)) != 1 {
			return fmt.Errorf("checksum %s differs from the published one: try again", strings.TrimPrefix(sum.suffix, "."))
		}
		return nil
	}
	return errors.New("the repository has no checksum for the file")
}

// Downloaded lists the majors that an earlier download left in the cache.
func Downloaded() []string {
	return slices.DeleteFunc(slices.Clone(Majors), func(major string) bool {
		return !slices.ContainsFunc(downloadedDirs(major), func(dir string) bool { return isFile(filepath.Join(dir, "postgres")) })
	})
}
