// Package advice is an error with its next step: what is wrong, what to do, and a block of
// configuration to paste. It imports nothing of the module.
package advice
