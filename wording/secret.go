package wording

import "regexp"

var Secretive = regexp.MustCompile(`(?i)password|secret|token|credential|auth|jaas|salt|private`)

var login = regexp.MustCompile(`://[^@/\s]*@`)

// WithoutLogin hides the user and the password of a URL that was given where none belongs.
func WithoutLogin(text string) string { return login.ReplaceAllString(text, "://***@") }
