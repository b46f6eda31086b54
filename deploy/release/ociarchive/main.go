// Command ociarchive writes the image of a release as an archive, without a container engine:
// the same bytes for the same input. What the image is comes from the last stage of the
// Dockerfile. The archive is an OCI layout that `docker load` reads too.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strings"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.dockerfile, "dockerfile", "Dockerfile", "what the image is")
	flag.StringVar(&o.binary, "binary", "", "the program, static, for Linux")
	flag.StringVar(&o.certificates, "certificates", "/etc/ssl/certs/ca-certificates.crt", "the authorities that the program trusts")
	flag.StringVar(&o.arch, "arch", "amd64", "amd64 or arm64")
	flag.StringVar(&o.name, "name", "", "name and tag of the image")
	flag.StringVar(&o.out, "out", "", "the archive")
	epoch := flag.Int64("epoch", 0, "seconds since 1970 that the image was made at")
	flag.Parse()
	o.created = time.Unix(*epoch, 0).UTC()
	if err := write(o); err != nil {
		fmt.Fprintln(os.Stderr, "ociarchive:", err)
		os.Exit(1)
	}
}

type options struct {
	dockerfile, binary, certificates, arch, name, out string
	created                                           time.Time
}

// config is the part of an image's configuration that the Dockerfile decides.
type config struct {
	User         string              `json:"User,omitempty"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts,omitempty"`
	Env          []string            `json:"Env,omitempty"`
	Entrypoint   []string            `json:"Entrypoint,omitempty"`
	Cmd          []string            `json:"Cmd,omitempty"`
	Healthcheck  *healthcheck        `json:"Healthcheck,omitempty"` // Docker's own; others leave it aside
	WorkingDir   string              `json:"WorkingDir"`
	Labels       map[string]string   `json:"Labels,omitempty"`
	StopSignal   string              `json:"StopSignal,omitempty"`
}

type healthcheck struct {
	Test        []string
	Interval    time.Duration `json:",omitempty"`
	Timeout     time.Duration `json:",omitempty"`
	StartPeriod time.Duration `json:",omitempty"`
	Retries     int           `json:",omitempty"`
}

var (
	lastStage = regexp.MustCompile(`(?m)^FROM scratch$`)
	label     = regexp.MustCompile(`([a-z.]+)="([^"]*)"`)
	option    = regexp.MustCompile(`--([a-z-]+)=(\S+)`)
)

// parse reads the last stage. An instruction that it does not know is an error, so that the
// archive cannot differ from the image without a word.
func parse(dockerfile string) (config, error) {
	c := config{WorkingDir: "/", Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, ExposedPorts: map[string]struct{}{}, Labels: map[string]string{}}
	at := lastStage.FindStringIndex(dockerfile)
	if at == nil {
		return c, errors.New("the Dockerfile has no stage FROM scratch")
	}
	stage := strings.ReplaceAll(dockerfile[at[1]:], "\\\n", " ")
	var errs []error
	for line := range strings.Lines(stage) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = strings.TrimSpace(rest)
		switch word {
		case "", "#":
		case "COPY":
			if !copied[rest] {
				errs = append(errs, fmt.Errorf("the archive has no part for COPY %s", rest))
			}
		case "USER":
			c.User = rest
		case "STOPSIGNAL":
			c.StopSignal = rest
		case "EXPOSE":
			c.ExposedPorts[rest+"/tcp"] = struct{}{}
		case "ENTRYPOINT":
			errs = append(errs, json.Unmarshal([]byte(rest), &c.Entrypoint))
		case "CMD":
			errs = append(errs, json.Unmarshal([]byte(rest), &c.Cmd))
		case "LABEL":
			for _, pair := range label.FindAllStringSubmatch(rest, -1) {
				c.Labels[pair[1]] = pair[2]
			}
		case "HEALTHCHECK":
			check, err := parseHealthcheck(rest)
			c.Healthcheck = check
			errs = append(errs, err)
		default:
			errs = append(errs, fmt.Errorf("the archive knows no instruction %s", word))
		}
	}
	return c, errors.Join(errs...)
}

// copied are the files of the image.
var copied = map[string]bool{
	"--from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt": true,
	"--from=build /out/passwd /etc/passwd":                                               true,
	"--from=build /out/cdc-relay /cdc-relay":                                             true,
}

const passwd = "relay:x:65532:65532:cdc-relay:/:/nonexistent\n"

func parseHealthcheck(text string) (*healthcheck, error) {
	options, command, found := strings.Cut(text, "CMD ")
	var check healthcheck
	if !found {
		return nil, fmt.Errorf("HEALTHCHECK %s has no CMD", text)
	}
	var args []string
	errs := []error{json.Unmarshal([]byte(command), &args)}
	check.Test = append([]string{"CMD"}, args...)
	for _, pair := range option.FindAllStringSubmatch(options, -1) {
		var err error
		switch pair[1] {
		case "interval":
			check.Interval, err = time.ParseDuration(pair[2])
		case "timeout":
			check.Timeout, err = time.ParseDuration(pair[2])
		case "start-period":
			check.StartPeriod, err = time.ParseDuration(pair[2])
		case "retries":
			_, err = fmt.Sscan(pair[2], &check.Retries)
		default:
			err = fmt.Errorf("HEALTHCHECK knows no --%s", pair[1])
		}
		errs = append(errs, err)
	}
	return &check, errors.Join(errs...)
}

// descriptor names one part of the archive.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    map[string]string `json:"platform,omitempty"`
}

type archive struct {
	out     *tar.Writer
	created time.Time
}

func (a *archive) file(name string, data []byte, mode int64) error {
	header := &tar.Header{Name: name, Mode: mode, Size: int64(len(data)), ModTime: a.created, Format: tar.FormatUSTAR, Typeflag: tar.TypeReg}
	if err := a.out.WriteHeader(header); err != nil {
		return err
	}
	_, err := a.out.Write(data)
	return err
}

func (a *archive) folder(name string) error {
	return a.out.WriteHeader(&tar.Header{Name: name + "/", Mode: 0o755, ModTime: a.created, Format: tar.FormatUSTAR, Typeflag: tar.TypeDir})
}

func blob(digest string) string { return "blobs/sha256/" + strings.TrimPrefix(digest, "sha256:") }

func (a *archive) blob(mediaType string, data []byte) (descriptor, error) {
	sum := sha256.Sum256(data)
	d := descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: len(data)}
	return d, a.file(blob(d.Digest), data, 0o644)
}

func (a *archive) json(mediaType string, value any) (descriptor, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, err
	}
	return a.blob(mediaType, data)
}

// layer is the image's file system.
func layer(o options) ([]byte, error) {
	binary, err := os.ReadFile(o.binary)
	if err != nil {
		return nil, err
	}
	certificates, err := os.ReadFile(o.certificates)
	if err != nil {
		return nil, err
	}
	var buffer bytes.Buffer
	a := &archive{out: tar.NewWriter(&buffer), created: o.created}
	err = errors.Join(
		a.file("cdc-relay", binary, 0o755),
		a.folder("etc"),
		a.file("etc/passwd", []byte(passwd), 0o644),
		a.folder("etc/ssl"),
		a.folder("etc/ssl/certs"),
		a.file("etc/ssl/certs/ca-certificates.crt", certificates, 0o644),
		a.out.Close(),
	)
	return buffer.Bytes(), err
}

func write(o options) (err error) {
	dockerfile, err := os.ReadFile(o.dockerfile)
	if err != nil {
		return err
	}
	settings, err := parse(string(dockerfile))
	if err != nil {
		return err
	}
	if !strings.Contains(string(dockerfile), strings.TrimSpace(passwd)) {
		return errors.New("the Dockerfile has another /etc/passwd")
	}
	files, err := layer(o)
	if err != nil {
		return err
	}
	out, err := os.Create(o.out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return assemble(out, o, settings, files)
}

func assemble(to io.Writer, o options, settings config, files []byte) error {
	a := &archive{out: tar.NewWriter(to), created: o.created}
	if err := errors.Join(a.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644), a.folder("blobs"), a.folder("blobs/sha256")); err != nil {
		return err
	}
	content, err := a.blob("application/vnd.oci.image.layer.v1.tar", files)
	if err != nil {
		return err
	}
	image, err := a.json("application/vnd.oci.image.config.v1+json", map[string]any{
		"created": o.created.Format(time.RFC3339), "architecture": o.arch, "os": "linux", "config": settings,
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{content.Digest}},
		"history": []map[string]string{{"created": o.created.Format(time.RFC3339), "created_by": path.Base(os.Args[0])}},
	})
	if err != nil {
		return err
	}
	manifest, err := a.json("application/vnd.oci.image.manifest.v1+json", map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": image, "layers": []descriptor{content},
	})
	if err != nil {
		return err
	}
	_, tag, _ := strings.Cut(path.Base(o.name), ":")
	manifest.Annotations = map[string]string{"io.containerd.image.name": o.name, "org.opencontainers.image.ref.name": tag}
	manifest.Platform = map[string]string{"architecture": o.arch, "os": "linux"}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []descriptor{manifest}})
	if err != nil {
		return err
	}
	older, err := json.Marshal([]map[string]any{{"Config": blob(image.Digest), "RepoTags": []string{o.name}, "Layers": []string{blob(content.Digest)}}})
	if err != nil {
		return err
	}
	return errors.Join(a.file("index.json", index, 0o644), a.file("manifest.json", older, 0o644), a.out.Close())
}
