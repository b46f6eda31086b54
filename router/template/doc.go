// Package template is text with ${column} in it, as topics and headers are configured with.
// A Template is parsed once, and bound once for each relation.
package template
