package config

import (
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/retention"
	"github.com/cdc-relay/cdc-relay/retention/export"
)

const s3Scheme = "s3://"

// files is where a policy exports to. It was checked.
func (e *exportSettings) files() retention.Files {
	files := retention.Files{To: e.To, Slice: time.Duration(e.Slice)}
	place, isBucket := strings.CutPrefix(e.To, s3Scheme)
	if !isBucket {
		files.Folder = e.To
		return files
	}
	bucket, prefix, _ := strings.Cut(place, "/")
	files.Place = export.Place{Bucket: bucket, Prefix: strings.Trim(prefix, "/"), Region: e.Region, Endpoint: e.Endpoint, PathStyle: e.PathStyle}
	return files
}

func (l *loader) checkExport(path string, r *retentionSettings) {
	e := &r.Export
	if r.Then != string(retention.Export) {
		l.checkNoExport(path, "export", r)
		return
	}
	if hours := time.Duration(e.Slice); hours < time.Hour || hours > 24*time.Hour || (24*time.Hour)%hours != 0 || hours%time.Hour != 0 {
		l.refuse(path+".slice", "%v is not allowed; allowed: 1h, 2h, 3h, 4h, 6h, 8h, 12h, 24h", e.Slice)
	}
	if strings.HasPrefix(e.To, s3Scheme) {
		l.checkBucket(path, e)
		return
	}
	scheme, _, hasScheme := strings.Cut(e.To, "://")
	switch {
	case e.To == "":
		l.refuse(path+".to", "is missing; allowed: a directory, for example /var/lib/cdc-relay/export, or a bucket, for example s3://bucket/outbox")
	case hasScheme:
		l.refuse(path+".to", "is a URL (%s://…) of another kind than s3; allowed: a directory, or a bucket, for example s3://bucket/outbox", scheme)
	case !filepath.IsAbs(e.To):
		l.refuse(path+".to", "%q is relative; allowed: a directory with its whole path, or a bucket, for example s3://bucket/outbox", e.To)
	}
	for _, key := range e.ofBucket() {
		l.noEffect(path+"."+key, path+".to", "a bucket (s3://bucket/prefix)")
	}
}

// checkNoExport refuses keys of a table whose rows go to no file.
func (l *loader) checkNoExport(path, then string, r *retentionSettings) {
	var set []string
	if r.Export.To != "" {
		set = append(set, "to")
	}
	if r.Export.Slice != l.usualRetention().Export.Slice {
		set = append(set, "slice")
	}
	for _, key := range append(set, r.Export.ofBucket()...) {
		l.noEffect(path+"."+key, strings.TrimSuffix(path, "export")+"then", then)
	}
}

// ofBucket are the keys that are set, and mean nothing for a directory.
func (e *exportSettings) ofBucket() (set []string) {
	for _, key := range []struct {
		name string
		set  bool
	}{{"region", e.Region != ""}, {"endpoint", e.Endpoint != ""}, {"path_style", e.PathStyle}} {
		if key.set {
			set = append(set, key.name)
		}
	}
	return set
}

var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	keyPrefix  = regexp.MustCompile(`^(?:[A-Za-z0-9!_.*'()=-]+/)*[A-Za-z0-9!_.*'()=-]+$`)
	regionName = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)
)

func (l *loader) checkBucket(path string, e *exportSettings) {
	files := e.files()
	switch {
	case !bucketName.MatchString(files.Bucket):
		l.refuse(path+".to", "%q is no name of a bucket; allowed: s3://, then 3 to 63 of a-z, 0-9, . and -, then / and a prefix", files.Bucket)
	case files.Prefix != "" && (!keyPrefix.MatchString(files.Prefix) || len(files.Prefix) > 512 || dots(files.Prefix)):
		l.refuse(path+".to", "%q is no prefix; allowed: parts of letters, digits and !_.*'()=- between single /, and no part . or ..", files.Prefix)
	}
	if e.Region != "" && !regionName.MatchString(e.Region) {
		l.refuse(path+".region", "%q is no region; allowed: one as eu-central-1", e.Region)
	}
	if e.Endpoint == "" {
		return
	}
	at, err := url.Parse(e.Endpoint)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.User != nil || at.RawQuery != "" || at.Fragment != "" || strings.Trim(at.Path, "/") != "" {
		l.refuse(path+".endpoint", "is no address of a store; allowed: http:// or https://, then host and port and nothing else; credentials come from AWS's usual chain")
	}
}

func dots(prefix string) bool {
	for part := range strings.SplitSeq(prefix, "/") {
		if strings.Trim(part, ".") == "" {
			return true
		}
	}
	return false
}
