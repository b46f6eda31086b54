package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Source is where a PostgreSQL server may come from.
type Source string

// The sources. A server that is given by address comes before all of them.
const (
	Local     Source = "local"     // installed binaries, or an earlier download
	Container Source = "container" // a container engine that answers
	Download  Source = "download"  // fetched once into the user's cache
)

// BinariesVariable names the environment variable for the folder of initdb and
// postgres.
const BinariesVariable = "CDC_RELAY_POSTGRES_BIN"

// Majors are the server versions that the sandbox knows to find.
var Majors = []string{"14", "15", "16", "17", "18"}

type found struct {
	binaries  string
	container *container
}

func findPostgres(ctx context.Context, options PostgresOptions) (found, error) {
	if options.Binaries != "" {
		return found{binaries: options.Binaries}, nil
	}
	if dir := os.Getenv(BinariesVariable); dir != "" {
		if major := majorOf(ctx, dir); options.Version == "" || options.Version == major {
			return found{binaries: dir}, nil
		}
	}
	sources := options.Sources
	if sources == nil {
		sources = []Source{Local, Container, Download}
	}
	var tried []error
	for _, source := range sources {
		var f found
		var err error
		switch source {
		case Local:
			f.binaries, err = localBinaries(ctx, options.Version)
		case Container:
			f.container, err = startPostgresContainer(ctx, options)
		case Download:
			f.binaries, err = downloadPostgres(ctx, options.Version, options.Log)
		default:
			err = fmt.Errorf("unknown source %q", source)
		}
		if err == nil {
			return f, nil
		}
		if source == Container && len(sources) > 1 && options.Log != nil && !errors.Is(err, ErrNoEngine) {
			fmt.Fprintf(options.Log, "PostgreSQL %s does not run in a container, programs are used: %v\n", options.Version, err)
		}
		if ctx.Err() != nil {
			return found{}, fmt.Errorf("find PostgreSQL: %w", context.Cause(ctx))
		}
		tried = append(tried, err)
	}
	return found{}, fmt.Errorf("find PostgreSQL %s: install the package postgresql, set %s to the folder of initdb, or give the address of a server: %w",
		options.Version, BinariesVariable, errors.Join(tried...))
}

// localBinaries is the newest fitting installation on this machine.
func localBinaries(ctx context.Context, version string) (string, error) {
	for _, dir := range candidates(version) {
		if !isFile(filepath.Join(dir, "initdb")) || !isFile(filepath.Join(dir, "postgres")) {
			continue
		}
		major := majorOf(ctx, dir)
		if major == version || version == "" && slices.Contains(Majors, major) {
			return dir, nil
		}
	}
	return "", errors.New("no installed PostgreSQL found")
}

// candidates are the folders where packages put the server programs, newest
// version first.
func candidates(version string) []string {
	majors := []string{version}
	if version == "" {
		majors = slices.Clone(Majors)
		slices.Reverse(majors)
	}
	var dirs []string
	for _, major := range majors {
		dirs = append(dirs,
			"/usr/lib/postgresql/"+major+"/bin",                               // Debian, Ubuntu
			"/usr/pgsql-"+major+"/bin",                                        // the PostgreSQL project's RPMs
			"/opt/homebrew/opt/postgresql@"+major+"/bin",                      // Homebrew, Apple silicon
			"/usr/local/opt/postgresql@"+major+"/bin",                         // Homebrew, Intel
			"/home/linuxbrew/.linuxbrew/opt/postgresql@"+major+"/bin",         // Homebrew on Linux
			"/Applications/Postgres.app/Contents/Versions/"+major+"/bin",      // Postgres.app
			"/usr/local/pgsql-"+major+"/bin", "/opt/postgresql/"+major+"/bin", // built by hand
		)
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	dirs = append(dirs, "/usr/bin", "/usr/local/pgsql/bin") // Arch, Alpine, Fedora; from source
	for _, major := range majors {
		dirs = append(dirs, downloadedDirs(major)...)
	}
	return dirs
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// majorOf asks the programs in dir for their major version; empty when they do
// not run here.
func majorOf(ctx context.Context, dir string) string {
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return ""
	}
	match := versionPattern.FindSubmatch(out)
	if match == nil {
		return ""
	}
	return string(match[1])
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}
