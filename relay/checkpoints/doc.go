// Package checkpoints is what commands beside a relay do with the checkpoint topic: they read what it
// says of a slot, and write the first checkpoint of a new one.
package checkpoints
