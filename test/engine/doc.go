// Package engine runs what users run, in a container engine: the image, compose.yaml, and
// several relays beside each other. engine.sh has the engine and the images; the tests have
// the build tag engine.
package engine
