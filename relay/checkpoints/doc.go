// Package checkpoints is what commands beside a running relay do with the checkpoint topic: they
// hold a slot against its checkpoint, write the first one, and forget one.
package checkpoints
