// Package advice is how the program speaks of what is wrong: an error with its next step, and
// a finding of a check. It imports nothing of the module.
package advice
