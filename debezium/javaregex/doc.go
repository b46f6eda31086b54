// Package javaregex matches and replaces as java.util.regex does, with Go's engine. What the
// two read differently is translated or refused. It imports nothing of the module.
package javaregex
