//go:build !unix

package main

// Other systems write none unless the machine is set up to.
func forbidCores() {}
