// Package encode makes the value of a record by a schema of a registry, in the registry's framing:
// a zero byte, the number of the schema in four bytes, and the encoded payload. It also looks at
// values that somebody else framed.
//
// It is pure: who has the schema gives it (Compile), and the result turns JSON into bytes.
package encode
