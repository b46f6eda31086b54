package wording

import "regexp"

var Secretive = regexp.MustCompile(`(?i)password|secret|token|credential|auth|jaas|salt|private`)
